"""Lets PyPI's torch, which is linked with CUDA, load on a machine without it: one library of functions that abort.

usage: stub_cuda.py SITE_PACKAGES
"""

import pathlib
import re
import subprocess
import sys
import tempfile

site_packages = pathlib.Path(sys.argv[1])
torch = site_packages / "torch" / "lib"
# The libraries of torch are looked for here, too.
cuda = site_packages / "nvidia" / "cu13" / "lib"
STUB = cuda / "libstub.so"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(library, which):
    lines = output("nm", "-D", which, str(library)).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if line.strip()}


if STUB.exists():
    sys.exit()
libraries = list(torch.glob("*.so*"))
present = {path.name for path in [*libraries, *cuda.glob("*.so*")]}
needed, undefined, defined = set(), set(), set()
for library in libraries:
    needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", str(library))))
    undefined |= symbols(library, "--undefined-only")
for library in [*libraries, *cuda.glob("*.so*")]:
    defined |= symbols(library, "--defined-only")
missing = sorted(name for name in needed - present if re.match(r"lib(cu|nccl|nv)", name))
names = sorted(name for name in undefined - defined if re.match(r"(cu|nccl|nv)[A-Za-z_]*", name))
with tempfile.TemporaryDirectory() as folder:
    source = pathlib.Path(folder, "stub.c")
    source.write_text("void abort(void);\n" + "".join(f"void {name}(void) {{ abort(); }}\n" for name in names))
    output("gcc", "-w", "-shared", "-fPIC", "-fno-builtin", "-o", str(STUB), str(source))
for name in missing:
    (cuda / name).symlink_to(STUB.name)
print(f"{len(names)} functions stand in for {', '.join(missing)}")
