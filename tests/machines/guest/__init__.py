"""Commands in a virtual machine that sees this host's files, for what this host's kernel is not configured to do.

The guest boots a Debian kernel (unpacked by `tests/machines/guest/install`) under QEMU, with KVM or several times
slower without. Its root is the host's, by 9p and
read-only, under an overlay in the guest's memory: the same Python, the same sources, and nothing written here. It has
cgroup v2 alone, a loopback interface, and no network.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

QEMU = "qemu-system-x86_64"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slslab-guest"
# In the order in which they are loaded; what a kernel has built in is no file there.
MODULES = (
    "virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p "
    "overlay"
)
# Serial ports: 0 the kernel's console, 1 the command's output, 2 its exit status, 3 what coverage measured of it.
INIT = """#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in MODULES; do
    [ ! -e "/modules/$module.ko" ] || insmod "/modules/$module.ko"
done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose host /host
mount -t tmpfs -o mode=755 memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work root /root
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/shm
mount -t tmpfs -o mode=1777 memory /root/dev/shm
mount -t tmpfs -o mode=755 memory /root/run
cp /bin/busybox /command /then /root/run
ip link set lo up
# Not merely chroot: who is in one may make no user namespaces.
exec switch_root /root /run/busybox sh /run/then
"""
THEN = """/run/busybox hostname guest
/run/busybox stty -F /dev/ttyS1 raw
/run/busybox stty -F /dev/ttyS3 raw
/bin/sh /run/command < /dev/null > /dev/ttyS1 2>&1
echo $? > /dev/ttyS2
/run/busybox reboot -f
"""


def missing() -> str | None:
    """What this host lacks for a guest, in one line; None where nothing is missing."""
    lacking = [] if shutil.which(QEMU) else [QEMU]
    lacking += [str(file) for file in (CACHE / "vmlinuz", CACHE / "busybox") if not file.exists()]
    return f"no virtual machine: {', '.join(lacking)} missing (tests/machines/guest/install)" if lacking else None


def hardware_kvm() -> bool:
    """Whether KVM runs any kernel here: a host that is itself a guest may have a /dev/kvm for special kernels only."""
    if not any(Path(f"/sys/module/{module}").exists() for module in ("kvm_intel", "kvm_amd")):
        return False
    try:
        os.close(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def run_in_guest(
    command: Sequence[str], *, variables: Mapping[str, str] | None = None, memory_mb: int = 2048, limit_s: float = 540
) -> tuple[int, str]:
    """Run a command as root in a fresh guest, in this directory; its exit status and what it wrote."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/tmp",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        **(variables or {}),
    }
    # Another user of the guest can reach Python and the sources, also where the host's home directory is closed.
    ways = {
        parent for path in (Path(sys.executable).resolve(), Path(sys.prefix), Path.cwd()) for parent in path.parents
    }
    # Under coverage the command measures itself, and its figures come back through a serial port.
    measured = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_PROCESS")}
    environment |= measured
    script = f"chmod a+x {shlex.join(map(str, sorted(ways)))}; cd {shlex.quote(os.getcwd())}; "
    script += "chmod a+rwx .coverage; " if measured else ""
    script += shlex.join(["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command])
    script += "; status=$?; "
    script += "/run/busybox tar -cf /dev/ttyS3 .coverage/data.guest.*; " if measured else ""
    script += "exit $status"
    with tempfile.TemporaryDirectory(prefix="slslab-guest-") as name:
        work = Path(name)
        _initial_files(work, script)
        ports = [work / "console", work / "output", work / "status", work / "measured"]
        # Emulated, wide vector instructions are slow; numpy needs what a Nehalem has.
        processor = ["kvm", "-cpu", "host"] if hardware_kvm() else ["tcg,thread=multi", "-cpu", "Nehalem"]
        machine = [QEMU, "-accel", *processor, "-smp", "2", "-m", str(memory_mb)]
        machine += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
        machine += ["-kernel", str(CACHE / "vmlinuz"), "-initrd", str(work / "initrd")]
        machine += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]
        machine += ["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"]
        machine += ["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]
        for port in ports:
            machine += ["-serial", f"file:{port}"]
        try:
            qemu = subprocess.run(machine, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s)
            ended, errors = "the guest ended before its command did", qemu.stderr
        except subprocess.TimeoutExpired:
            ended, errors = f"the guest was ended after {limit_s:g} s", ""
        console, output, status = (port.read_text(errors="replace") if port.exists() else "" for port in ports[:3])
        if not status.strip().isdigit():
            raise RuntimeError(f"{ended}:\n{errors}{console[-4000:]}{output}")
        if measured:
            with tarfile.open(ports[3]) as archive:
                archive.extractall(filter="data")
        return int(status), output


def _initial_files(work: Path, script: str) -> None:
    """Write the guest's first file system: busybox, the modules, and what it does."""
    tree = work / "tree"
    for directory in ("bin", "dev", "host", "memory", "root"):
        (tree / directory).mkdir(parents=True)
    shutil.copy(CACHE / "busybox", tree / "bin")
    shutil.copytree(CACHE / "modules", tree / "modules")
    (tree / "command").write_text(script)
    (tree / "then").write_text(THEN)
    (tree / "init").write_text(INIT.replace("MODULES", MODULES))
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    archive = subprocess.run(
        [str(CACHE / "busybox"), "cpio", "-o", "-H", "newc"],
        cwd=tree,
        input=names.encode(),
        capture_output=True,
        check=True,
    )
    (work / "initrd").write_bytes(archive.stdout)
