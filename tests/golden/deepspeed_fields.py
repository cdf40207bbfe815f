# SPDX-License-Identifier: Apache-2.0
"""Every field of DeepSpeed's config classes, read from its source without importing it, against the golden list.

usage: deepspeed_fields.py SOURCE [--write]: SOURCE is the folder `deepspeed` of an unpacked source distribution. Each
field must be in deepspeed_keys.txt; --write adds those that are not, of class "?" (the importer's table then needs a
row). The files are parsed: fields of pydantic classes with their aliases, strings of the constants that name keys, and
the names that .get("...") asks for.
"""
import ast
import sys
from pathlib import Path

LIST = Path(__file__).resolve().parent / "deepspeed_keys.txt"

# (file, class or None for the whole file, where its fields stand in a configuration)
CLASSES = (
    ("runtime/zero/config.py", "DeepSpeedZeroConfig", "zero_optimization."),
    ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadParamConfig", "zero_optimization.offload_param."),
    ("runtime/zero/offload_config.py", "DeepSpeedZeroOffloadOptimizerConfig", "zero_optimization.offload_optimizer."),
    ("runtime/zero/leaf_module_config.py", "DeepSpeedZeroLeafModuleConfig", "zero_optimization.leaf_module."),
    ("runtime/zenflow/zenflow_config.py", "ZenFlowConfig", "zero_optimization.zenflow."),
    ("runtime/precision_config.py", "DeepSpeedBF16Config", "bf16."),
    ("runtime/precision_config.py", "DeepSpeedFP16Config", "fp16."),
    ("runtime/tensor_parallel/config.py", "TPTrainingConfig", "tensor_parallel."),
    ("runtime/tensor_parallel/config.py", "TPConfig", "tensor_parallel.tp."),
    ("runtime/config.py", "HybridEngineConfig", "hybrid_engine."),
    ("monitor/config.py", "TensorBoardConfig", "tensorboard."),
    ("monitor/config.py", "WandbConfig", "wandb."),
    ("monitor/config.py", "CSVConfig", "csv_monitor."),
    ("monitor/config.py", "CometConfig", "comet."),
    ("comm/config.py", "CommsLoggerConfig", "comms_logger."),
    ("compile/config.py", "CompileConfig", "compile."),
    ("utils/config.py", "DeepSpeedThroughputTimerConfig", "timers.throughput."),
)
# Blocks whose members are named by constants: (file, prefixes of the constants' names, where they stand)
CONSTANTS = (
    ("runtime/activation_checkpointing/config.py", ("ACT_CHKPT_",), "activation_checkpointing."),
    ("profiling/constants.py", ("FLOPS_PROFILER_",), "flops_profiler."),
    ("runtime/swap_tensor/constants.py", ("AIO_",), "aio."),
    ("runtime/constants.py", ("GRAD_ACCUM_DTYPE", "PARAM_DTYPE", "BUFFER_DTYPE", "KEEP_IN_FP32"), "data_types."),
    ("runtime/constants.py", ("TORCH_AUTOCAST_",), "torch_autocast."),
)
# Blocks whose members are asked for by .get("name"): (file, where they stand)
GETS = (("module_inject/auto_ep_config.py", "expert_parallel."),)
# Constants of runtime/constants.py that runtime/config.py reads at the top level, and others it spells out.
NOT_VALUES = ("_FORMAT", "_DEFAULT", "_SUPPORTED", "_MODES")


def parse(root, name):
    return ast.parse((root / name).read_text(encoding="utf-8"))


def class_fields(tree, name):
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    yield item.target.id
                    for word in getattr(item.value, "keywords", []):
                        if word.arg == "alias":
                            yield word.value.value
            return
    sys.exit(f"deepspeed_fields: no class {name}; has DeepSpeed moved it?")


def constants(tree):
    """Name and text of every constant that may name a key."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            name = node.targets[0].id
            if not name.endswith(NOT_VALUES) and "\n" not in node.value.value:
                yield name, node.value.value


def top_level(root):
    """What runtime/config.py takes from the whole configuration: by constant, by string, and what it refuses."""
    named = dict(constants(parse(root, "runtime/constants.py")))
    tree = parse(root, "runtime/config.py")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            on_all = ast.unparse(node.args[0]) == "param_dict" or ast.unparse(node.func) == "param_dict.get"
            for argument in node.args:
                if not on_all:
                    continue
                if isinstance(argument, ast.Name) and argument.id in named:
                    yield named[argument.id]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_REMOVED_TOP_LEVEL_CONFIG_KEYS":
            yield from (key.value for key in node.value.keys)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_REMOVED_ZERO_CONFIG_KEYS":
            yield from ("zero_optimization." + key.value for key in node.value.keys)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "default_pipeline":
            yield from ("pipeline." + key.value for key in node.value.keys)


def all_fields(root):
    found = set(top_level(root))
    for name, cls, prefix in CLASSES:
        found |= {prefix + field for field in class_fields(parse(root, name), cls)}
    for name, prefixes, place in CONSTANTS:
        found |= {place + text for key, text in constants(parse(root, name)) if key.startswith(prefixes)}
    for name, place in GETS:
        for node in ast.walk(parse(root, name)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "param_dict.get":
                found.add(place + node.args[0].value)
    return found


def main():
    root = Path(sys.argv[1])
    known = dict(line.split(" ", 1) for line in LIST.read_text().splitlines() if line and not line.startswith("#"))
    fields = all_fields(root)
    # a block is known by its members
    missing = sorted(field for field in fields
                     if field not in known and not any(name.startswith(field + ".") for name in known))
    print(f"deepspeed_fields: {len(fields)} fields of DeepSpeed, {len(missing)} not in {LIST.name}")
    for field in missing:
        print(f"  {field}")
    if missing and "--write" in sys.argv:
        with open(LIST, "a", encoding="utf-8") as out:
            out.writelines(f"{field} ?\n" for field in missing)
    sys.exit(1 if missing and "--write" not in sys.argv else 0)


if __name__ == "__main__":
    main()
