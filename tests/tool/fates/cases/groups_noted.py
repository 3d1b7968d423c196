"""Note who asks for process groups; the method belongs to the class."""

from megatron.core.process_groups_config import ProcessGroupCollection

asked = []
_groups = ProcessGroupCollection.use_mpu_process_groups.__func__


def use_mpu_process_groups(cls, *args, **kwargs):
    asked.append(cls.__name__)
    return _groups(cls, *args, **kwargs)


ProcessGroupCollection.use_mpu_process_groups = classmethod(use_mpu_process_groups)
