# The two commands of the README are `make demo` and `make test`. Each makes the environment it needs.

# A Python of your choice: make demo PYTHON=/path/to/python3. Else the first that will do.
export PYTHON
# The tests start hundreds of processes: without bytecode each compiles the tool anew.
unexport PYTHONDONTWRITEBYTECODE
DEMO := .venv
TEST := .venv-test
WHEEL := .venv-wheel
SITE := .venv-docs
MCORE_OLDER := 0.18.2
MCORE_NEWER := 0.19.2
PIP_FLAGS := --quiet --disable-pip-version-check
# setuptools warns of folders beside an editable install, which are meant here.
PIP_EDIT = PYTHONWARNINGS=ignore $(1)/bin/pip install $(PIP_FLAGS) --editable .
# How many tests run at a time: make test JOBS=8.
JOBS ?= 2
# Each test and each job of the ranks has a limit of its own (tests/limits.py); the whole has none.
PYTEST = $(TEST)/bin/pytest --numprocesses $(JOBS) --dist worksteal

.PHONY: help demo docs release check test test-alone test-wheel everything margins mutation oracle lint format clean growth weight
help:
	@echo "make demo        the story of docs/index.md on the sample project in examples/, in ten seconds"
	@echo "make check       lint, and the tests that start no ranks and take less than half a second: 2 to 4 minutes"
	@echo "make test        run the test suite (Python 3.12+, torch, megatron-core); EVERY_CASE=1 runs all cases of each test"
	@echo "make test-alone  run every test file by itself, in random order"
	@echo "make test-wheel  run the tests of the tool against the built wheel"
	@echo "make everything  all of it, with the downstreams' own code: CHECKOUTS names the folder of their clones"
	@echo "make margins     how much of its tolerance each numeric test uses"
	@echo "make mutation    put small faults into the code and see which the tests notice: two hours"
	@echo "make oracle      is what upgrade says true? asks Python: SOURCES (unpacked wheels by version), CHECKOUTS"
	@echo "make lint        ruff and mypy"
	@echo "make docs        build the documentation in build/site; warnings and dead links fail"
	@echo "make release     build and try the packages, tag, and say what is left to a person; publishes nothing"
	@echo "make clean       remove the environments and build output"

# --- the demo: any Python 3.11 or newer, no torch ------------------------------------------------------------------

$(DEMO)/.installed: pyproject.toml
	@python=$$(.ci/find-python 3.11) && echo "Creating $(DEMO) with $$python ..." && "$$python" -m venv $(DEMO)
	@$(call PIP_EDIT,$(DEMO))
	@touch $@

demo: $(DEMO)/.installed
	@.ci/demo $(DEMO)/bin

# --- the tests -------------------------------------------------------------------------------------------------------

$(TEST)/.installed: pyproject.toml
	@python=$$(.ci/find-python) && echo "Creating $(TEST) with $$python ..." && "$$python" -m venv $(TEST)
	@$(TEST)/bin/pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@.ci/torch-note $(TEST)/bin/pip
	@$(call PIP_EDIT,$(TEST)) --group test "megatron-core==$(MCORE_NEWER)"
	@$(TEST)/bin/pip install $(PIP_FLAGS) --no-deps --upgrade --target $(TEST)/mcore-$(MCORE_OLDER) "megatron-core==$(MCORE_OLDER)"
	@touch $@

test: $(TEST)/.installed
	$(PYTEST) -m "not growth" $(if $(EVERY_CASE),--every-case) tests

check: lint
	$(PYTEST) -m "not ranks and not slow and not growth" tests

# FILES=tests/compat/skyrl/test_*.py narrows it, SEED=3 repeats an order.
test-alone: $(TEST)/.installed
	$(TEST)/bin/python tests/run_alone.py $(if $(SEED),--seed $(SEED)) --jobs $(JOBS) $(FILES)

# The wheel, installed and tested from a folder that holds nothing else: what an editable install would hide shows here.
# These read every data file, import every package and start every command; the others would say the same once more.
SEES_PACKAGING := $(addprefix tests/tool/,test_packaging.py test_fixes.py test_verdicts.py reports plugins upgrade library)
test-wheel: $(TEST)/.installed
	@rm -rf build $(WHEEL)
	@$(TEST)/bin/python -m build --quiet --wheel --outdir build/dist .
	@$(TEST)/bin/python -m venv $(WHEEL)
	@$(WHEEL)/bin/pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@$(WHEEL)/bin/pip install $(PIP_FLAGS) build/dist/*.whl --group dev
	@mkdir -p build/neutral && cp -r tests examples pyproject.toml build/neutral/
	cd build/neutral && ../../$(WHEEL)/bin/pytest --numprocesses $(JOBS) -m "not slow and not growth" $(SEES_PACKAGING)

# How the time of a scan grows with the work.
growth: $(TEST)/.installed
	$(PYTEST) -m growth tests

weight: $(TEST)/.installed
	@$(TEST)/bin/python tools/weight.py

# SOURCES holds unpacked wheels of megatron-core by version, CHECKOUTS clones of repositories that use it.
oracle: $(TEST)/.installed
	$(TEST)/bin/python tools/upgrade_oracle.py --sources $(SOURCES) $(wildcard $(CHECKOUTS)/*)

everything: $(TEST)/.installed
	CHECKOUTS=$(CHECKOUTS) .ci/everything

# FILES=tests/compat/hook narrows it.
margins: $(TEST)/.installed
	$(TEST)/bin/python tests/run_margins.py --jobs $(JOBS) $(FILES)

# FAULTS=20 tries more, SEED=3 others, AREA=scanner those of one area, AGAIN=1 what was not noticed. See tools/mutation/README.md.
mutation: $(TEST)/.installed
	$(TEST)/bin/python -m tools.mutation --faults $(or $(FAULTS),17) --seed $(or $(SEED),1) --jobs $(JOBS) \
		$(if $(AREA),--area "$(AREA)") $(if $(AGAIN),--again)

# --- documentation -------------------------------------------------------------------------------------------------

# Strict: a page that no one can reach, a dead link or a missing anchor fails. `make docs SERVE=1` shows it while you write.
docs: $(SITE)/.installed
	@NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs $(if $(SERVE),serve,build) && echo "build/site/index.html"

$(SITE)/.installed: pyproject.toml
	@python=$$(.ci/find-python 3.11) && echo "Creating $(SITE) with $$python ..." && "$$python" -m venv $(SITE)
	@$(SITE)/bin/pip install $(PIP_FLAGS) --upgrade 'pip>=25.1'
	@$(SITE)/bin/pip install $(PIP_FLAGS) --group docs
	@touch $@

# --- packages ------------------------------------------------------------------------------------------------------

release: $(TEST)/.installed
	@$(TEST)/bin/pip install $(PIP_FLAGS) --group release
	@.ci/release $(TEST)/bin

lint: $(TEST)/.installed
	$(TEST)/bin/ruff check .
	$(TEST)/bin/ruff format --check .
	$(TEST)/bin/mypy -p mcore_unpatch

format: $(TEST)/.installed
	$(TEST)/bin/ruff check --fix .
	$(TEST)/bin/ruff format .

clean:
	rm -rf $(DEMO) $(TEST) $(WHEEL) $(SITE) build dist *.egg-info
