"""A patch is found wherever Python lets a statement stand, and a call."""

import pytest
from checking import GPT, check_found

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
CALL = 'setattr(GPTModel, "forward", fast)'
BODIES = [
    "if a:\n    {}",
    "if a:\n    pass\nelif b:\n    {}",
    "if a:\n    pass\nelse:\n    {}",
    "for a in b:\n    {}",
    "for a in b:\n    pass\nelse:\n    {}",
    "async def f():\n    async for a in b:\n        {}",
    "while a:\n    {}",
    "while a:\n    pass\nelse:\n    {}",
    "with a:\n    {}",
    "async def f():\n    async with a:\n        {}",
    "try:\n    {}\nexcept ValueError:\n    pass",
    "try:\n    pass\nexcept ValueError:\n    {}",
    "try:\n    pass\nexcept ValueError:\n    pass\nelse:\n    {}",
    "try:\n    pass\nfinally:\n    {}",
    "try:\n    pass\nexcept* ValueError:\n    {}",
    "match a:\n    case 1:\n        pass\n    case _:\n        {}",
    "def f():\n    {}",
    "async def f():\n    {}",
    "class C:\n    {}",
    "class C:\n    def f(self):\n        {}",
    "def f():\n    def g():\n        {}",
]


@pytest.mark.parametrize("around", BODIES)
@pytest.mark.parametrize("patch", ["GPTModel.forward = fast", CALL])
def test_a_statement_in(around: str, patch: str) -> None:
    check_found(IMPORT + around.format(patch) + "\n", target=f"{GPT}.forward")
