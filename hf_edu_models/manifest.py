"""The manifest of a checkpoint: size and SHA-256 of each of its files, written last; and what can be wrong with one.

A folder with a manifest was saved completely, and a file that changed afterwards is found by its digest. A folder
without one, from an earlier version or another library, is only checked for files that cannot be read.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .run_folder import STATE, list_checkpoints, step_of, write_atomically

MANIFEST = "manifest.json"
_TORCH_FILES, _WEIGHTS = (".pt", ".pth", ".bin", ".pkl"), ("*.safetensors", "pytorch_model*.bin")
# What a run needs to resume exactly, by the file names of Trainer, Accelerate, FSDP and DeepSpeed.
_PARTS = {
    "weights": ("model*.safetensors", "adapter_model*", "pytorch_model*", "global_step*"),
    "optimizer state": ("optimizer*", "global_step*"),
    "learning-rate schedule": ("scheduler*", "custom_checkpoint_*", "global_step*"),
    "random state": ("rng_state*", "random_states_*"),
    "trainer_state.json": (STATE,),
}


def sha256(content: Path | bytes) -> str:
    """The digest of a file or of bytes, as 64 hexadecimal digits."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    with open(content, "rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def make_manifest(files: Mapping[str, Path | bytes]) -> bytes:
    """The content of a manifest for files by name."""
    entries = {
        name: {"size": len(each) if isinstance(each, bytes) else each.stat().st_size, "sha256": sha256(each)}
        for name, each in sorted(files.items())
    }
    return (json.dumps({"files": entries}, indent=1) + "\n").encode()


def write_manifest(folder: Path, names: Iterable[str] | None = None) -> None:
    """Write the manifest of a folder, by default of all of its files."""
    if names is None:
        names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]
    write_atomically(folder / MANIFEST, make_manifest({name: folder / name for name in names if name != MANIFEST}))


def read_manifest(folder: Path) -> dict[str, dict[str, Any]] | None:
    """Size and digest of each file by name; None without a manifest."""
    file = folder / MANIFEST
    if not file.is_file():
        return None
    try:
        entries = json.loads(file.read_bytes())["files"]
        return {str(name): {"size": int(each["size"]), "sha256": str(each["sha256"])} for name, each in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f"{file} is not a manifest; it is damaged, or of another program") from None


@contextmanager
def rewriting(folder: Path, is_writer: bool = True) -> Iterator[None]:
    """Replace files of a folder: its manifest, if it has one, is absent meanwhile and lists the new files afterwards.

    Args:
        is_writer: False in the other processes of a run, which change nothing.
    """
    manifest = None
    if is_writer:
        with suppress(ValueError):  # one that cannot be read is removed too
            manifest = read_manifest(folder)
        (folder / MANIFEST).unlink(missing_ok=True)
    yield
    if manifest is not None:
        write_manifest(folder, [name for name in manifest if (folder / name).is_file()])


def accept_changes(folder: Path) -> None:
    """Write new digests for the files that the manifest lists; an error without a manifest."""
    if read_manifest(folder) is None:
        raise ValueError(f"{folder} has no {MANIFEST}, so there are no digests to change")
    with rewriting(folder):
        pass


def _find_changed(folder: Path, with_weights: bool = True, with_states: bool = True) -> str | None:
    """What differs from the manifest, as part of a sentence; None if nothing does, or without a manifest.

    Args:
        with_weights: Also read the weights, which takes about a second per gigabyte.
        with_states: Also read the files that only resuming needs, such as the optimizer's state.
    """
    try:
        manifest = read_manifest(folder) or {}
    except ValueError as error:
        return str(error)
    for name, entry in manifest.items():
        file = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f"{name} is outside of the folder"
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != entry["size"]:
            return f"{name} has {file.stat().st_size:,} bytes instead of {entry['size']:,}"
        is_weights = any(file.match(pattern) for pattern in _WEIGHTS)
        is_wanted = with_weights if is_weights else with_states or file.suffix not in _TORCH_FILES
        if is_wanted and sha256(file) != entry["sha256"]:
            return f"{name} has changed since it was saved"
    return None


def find_damage(folder: Path, for_resuming: bool = False) -> str | None:
    """What is wrong with a checkpoint or a saved model, as part of a sentence; None if nothing is.

    Args:
        for_resuming: Also require all that a run needs to continue exactly, which `save_only_model` leaves out.
    """
    if not any(folder.iterdir()):
        return "it is empty"
    has_manifest = (folder / MANIFEST).is_file()
    problem = _find_changed(folder) if has_manifest else _find_unreadable(folder)
    if for_resuming:
        problem = problem or _find_missing_part(folder)
    return problem or _find_other_step(folder) or _find_non_finite(folder)


def check_undamaged(name: str, with_weights: bool = True) -> None:
    """Raise an error if the folder of a saved model has changed since it was saved; a Hub id is not checked."""
    folder = Path(name).expanduser()
    problem = _find_changed(folder, with_weights, with_states=False) if folder.is_dir() else None
    if problem:
        good = newest_good_checkpoint(folder.parent if step_of(folder) is not None else folder)
        instead = f"use {good}" if good else "save or download it again"
        raise ValueError(
            f"{name} is damaged: {problem}; {instead}. If you changed the file yourself: hf-edu check {name} --accept"
        )


def newest_good_checkpoint(run: Path) -> Path | None:
    """The last checkpoint of a run that it can be resumed from."""
    return next(
        (each for each in reversed(list_checkpoints(run)) if find_damage(each, for_resuming=True) is None), None
    )


def _find_missing_part(folder: Path) -> str | None:
    for part, patterns in _PARTS.items():
        if not any(True for pattern in patterns for _ in folder.glob(pattern)):
            return f"it has no {part}"
    return None


def _find_other_step(folder: Path) -> str | None:
    """Whether the content of a checkpoint is that of another step than its name says."""
    step = step_of(folder)
    if step is None or not (folder / STATE).is_file():
        return None
    try:
        found = json.loads((folder / STATE).read_bytes())["global_step"]
    except (ValueError, TypeError, KeyError):
        return f"{STATE} cannot be read"
    return None if found == step else f"{STATE} is that of step {found}"


def _find_unreadable(folder: Path) -> str | None:
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        if not _is_readable(file):
            return f"{file.relative_to(folder).as_posix()} is truncated or not a {file.suffix} file"
    index = folder / "model.safetensors.index.json"
    names = set(json.loads(index.read_bytes()).get("weight_map", {}).values()) if index.is_file() else set()
    missing = sorted(name for name in names if not (folder / name).is_file())
    return f"{missing[0]} is missing" if missing else None


def _is_readable(file: Path) -> bool:
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt"):
                pass
        elif file.suffix == ".json":
            json.loads(file.read_bytes())
        elif file.suffix in _TORCH_FILES:  # torch.save writes a zip file with checksums, which torch.load ignores
            with zipfile.ZipFile(file) as archive:
                return archive.testzip() is None
    except (SafetensorError, ValueError, zipfile.BadZipFile, EOFError, NotImplementedError, OSError):
        return False
    return True


def _find_non_finite(folder: Path) -> str | None:
    for file in sorted(each for pattern in _WEIGHTS for each in folder.glob(pattern)):
        try:
            for name, weight in _weights_in(file):
                if weight.is_floating_point() and weight.itemsize > 1 and not bool(weight.isfinite().all()):
                    return f"{name} in {file.name} has NaN or infinite values"
        except Exception as error:  # torch and safetensors raise many types
            return f"{file.name} cannot be read ({str(error).partition(chr(10))[0][:100]})"
    return None


def _weights_in(file: Path) -> Iterator[tuple[str, Any]]:
    if file.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118
                yield name, weights.get_tensor(name)
    else:
        import torch

        weights = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        yield from ((name, each) for name, each in weights.items() if isinstance(each, torch.Tensor))
