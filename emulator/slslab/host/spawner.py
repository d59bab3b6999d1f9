"""Start execution environments' processes in namespaces of their own: a small script that the emulator talks to.

It is a separate process because it forks: a fork of a small single-threaded process takes a millisecond and can't meet
a held lock. For every environment it makes an *init*, process 1 of the environment's pid namespace. The init builds the
file system that the function sees, starts the runtime, reaps orphans, and ends with the runtime; then the kernel kills
every descendant, even one that forked away from its parent. The file system is as Lambda documents it: everything is
read-only except /tmp (https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html), code is in /var/task,
and /dev/shm doesn't exist (https://aws.amazon.com/blogs/compute/parallel-processing-in-python-with-aws-lambda/).

Requests are JSON datagrams with three descriptors: the function's log, its trace, and the status pipe. The status pipe
returns lines: `started PID` (of the init, as the host sees it), `began …` (`report_first`), `failed WHY`, `exited
WAITSTATUS` (of the runtime).

Without a mode, the same processes start in the host's own namespaces, with the init as their subreaper. As a *template*
(third argument: a comma-separated list of modules) the script imports the modules once, and runtimes are its forks.
"""

import ctypes
import gc
import json
import os
import platform
import resource
import signal
import socket
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x08000000, 0x10000000, 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 2, 4, 8, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH, AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = 2, -100, 0x1000, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_IDMAP = 1, 2, 0x100000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 1, 4
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
# Numbers of system calls that some C libraries don't wrap; the newer ones are the same on all architectures.
CLONE, PIVOT_ROOT = {"x86_64": (56, 155), "aarch64": (220, 41)}.get(platform.machine(), (-1, -1))
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
DEVICES = ("null", "zero", "full", "random", "urandom")
TRACE_DESCRIPTOR = 3
MESSAGE_BYTES = 1 << 17
# The kernel's default limit, which some users of these namespaces could write.
KERNEL_FILES = ("sys", "irq", "bus", "sysrq-trigger")
SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-", "/etc/ssh", "/etc/sudoers")
# PyDLL keeps the interpreter's lock, so that no Python code runs between a clone and its return.
LIBC = ctypes.PyDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    """`struct mount_attr` of mount_setattr(2)."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def check(result: int, what: str) -> int:
    """Return the result of a C library call; OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    check(LIBC.mount(*arguments), f"mount {kind or source} on {target}")


def set_attributes(descriptor: int, path: str, flags: int, attributes: MountAttributes, what: str) -> None:
    """Call mount_setattr(2), Linux 5.12."""
    structure = (ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)))
    check(LIBC.syscall(MOUNT_SETATTR, descriptor, path.encode(), flags, *structure), what)


def map_ids(inside: int, outside: int, group_outside: int, process: str = "self") -> None:
    """Map one user and one group into the user namespace of a process."""
    Path(f"/proc/{process}/setgroups").write_text("deny")
    Path(f"/proc/{process}/uid_map").write_text(f"{inside} {outside} 1")
    Path(f"/proc/{process}/gid_map").write_text(f"{inside} {group_outside} 1")


def fork_into(flags: int) -> int:
    """Call fork(2) so that only the child gets new namespaces."""
    if CLONE < 0:
        raise OSError(0, f"no system call numbers are known for {platform.machine()}")
    pid = check(LIBC.syscall(CLONE, ctypes.c_ulong(flags | signal.SIGCHLD), 0, 0, 0, 0), "clone")
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    return pid


def bind(source: str, target: str) -> None:
    """Make a file, directory or symbolic link of the host visible at `target`."""
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, "", MS_BIND | MS_REC)


def open_directory(path: str) -> int:
    """Return a descriptor of a code directory, given its real path (O_PATH); OSError if the path changed meanwhile.

    After the path was checked, someone with write permission could replace the directory, or one above it, with a link,
    for instance to a folder that only root may read. So this follows no link.
    """
    descriptor = os.open("/", os.O_PATH)
    for name in Path(path).parts[1:]:
        above = descriptor
        try:
            descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except OSError as error:
            raise OSError(f"the code directory {path} is gone, or a link is in its place ({error.strerror})") from error
        finally:
            os.close(above)
    return descriptor


def bind_code(request: dict[str, Any], target: str) -> None:
    """Bind the code directory. If only its owner may read it, map it to the environment's user, or else copy it.

    Links that lead out of the directory lead nowhere, because the function follows them in its own file system.
    """
    descriptor, uid = open_directory(request["code"]), request["uid"]
    # The opened directory, even if its path now leads elsewhere; without the dot it would be a link to it.
    source = f"/proc/self/fd/{descriptor}/."
    readable = stat.S_IROTH | stat.S_IXOTH
    try:
        if uid is None or os.stat(source).st_mode & readable == readable:
            return bind(source, target)
        try:
            bind_mapped(source, target, uid)
        except OSError:  # some file systems, such as Docker's overlay, can't be mapped
            import shutil

            copy = f"{request['root']}-code"
            shutil.rmtree(copy, ignore_errors=True)  # a reset environment has one already
            shutil.copytree(source, copy, symlinks=True)
            inside = (os.path.join(top, name) for top, *both in os.walk(copy) for names in both for name in names)
            for path in (copy, *inside):
                os.chown(path, uid, uid, follow_symlinks=False)
            bind(copy, target)
    finally:
        os.close(descriptor)  # no environment may reach the host's directories through it


def bind_mapped(source: str, target: str, uid: int) -> None:
    """Bind a directory so that user `uid` has its owner's permissions there (an idmapped mount, Linux 5.12)."""
    os.makedirs(target, exist_ok=True)
    (stop_read, stop_write), (pid_read, pid_write) = os.pipe(), os.pipe()
    helper = fork_into(CLONE_NEWUSER)
    if helper == 0:
        os.close(stop_write)
        os.write(pid_write, os.readlink("/proc/self").encode())  # its number there: /proc is still the host's
        os.read(stop_read, 1)  # waits until its namespace has been opened
        os._exit(0)
    try:
        number = os.read(pid_read, 16).decode()
        map_ids(os.stat(source).st_uid, uid, uid, number)
        namespace = os.open(f"/proc/{number}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        flags = OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = check(LIBC.syscall(OPEN_TREE, AT_FDCWD, source.encode(), flags), f"open_tree {source}")
        set_attributes(tree, "", AT_EMPTY_PATH, MountAttributes(MOUNT_ATTR_IDMAP, 0, 0, namespace), "idmapped mount")
        check(
            LIBC.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH),
            f"move_mount to {target}",
        )
    finally:
        for end in (stop_write, stop_read, pid_read, pid_write):
            os.close(end)
        os.waitpid(helper, 0)


def build_root(request: dict[str, Any]) -> None:
    """Give this mount namespace the file system that the function sees, and nothing else from the host."""
    root = request["root"]
    mount("", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m")
    # Before the visible paths, because an interpreter may itself be below /tmp.
    bind(request["tmp"], f"{root}/tmp")
    for path in request["visible"]:
        bind(path, root + path)
    for source, target in request["files"]:
        bind(source, root + target)
    bind_code(request, f"{root}/var/task")
    for name in ("proc", "dev", "opt", "sys/devices/system"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("/sys/devices/system", f"{root}/sys/devices/system", "", MS_BIND | MS_REC)
    for name in DEVICES:
        bind(f"/dev/{name}", f"{root}/dev/{name}")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    for path in filter(os.path.exists, SECRETS):
        if os.path.isdir(path):
            mount("tmpfs", root + path, "tmpfs", MS_NOSUID | MS_NODEV, "size=4k,mode=755")
        else:
            mount("/dev/null", root + path, "", MS_BIND)
    read_only = MountAttributes(MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, 0, 0)
    set_attributes(AT_FDCWD, root, AT_RECURSIVE, read_only, "read-only root")
    set_attributes(AT_FDCWD, f"{root}/tmp", 0, MountAttributes(0, MOUNT_ATTR_RDONLY, 0, 0), "writable /tmp")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path in (f"{root}/proc/{name}" for name in KERNEL_FILES):
        if os.path.exists(path):
            mount(path, path, "", MS_BIND | MS_REC)
            set_attributes(AT_FDCWD, path, 0, read_only, f"read-only {path}")
    os.chdir(root)
    check(LIBC.syscall(PIVOT_ROOT, b".", b"."), "pivot_root")
    check(LIBC.umount2(b".", MNT_DETACH), "umount of the host's root")
    os.chdir("/")


def become_runtime(request: dict[str, Any], log: int, trace: int, groups: list[int]) -> None:
    """Set limits, user and descriptors: the last steps before the runtime's first instruction."""
    for group in groups:
        os.write(group, b"0")  # 0 stands for the writing process
    if request["processors"]:
        os.sched_setaffinity(0, request["processors"])
    uid = request["uid"]
    for name, limit in request["resources"].items():
        number = getattr(resource, f"RLIMIT_{name}")
        # Only root may raise a limit. The kernel counts all processes of a user, who may be the emulator's own.
        if name != "NPROC" or uid is not None:
            most = resource.getrlimit(number)[1]
            resource.setrlimit(
                number, (limit if most == resource.RLIM_INFINITY or uid is not None else min(limit, most),) * 2
            )
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    elif request["mode"]:
        # Root in the environment's namespaces could undo the mounts; an ordinary user in a nested namespace can't.
        check(LIBC.unshare(CLONE_NEWUSER), "unshare of the user namespace")
        map_ids(request["inner_uid"], 0, 0)
    else:
        check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent death signal")
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The descriptors may have any numbers, so copy them above the fixed ones first.
    log, trace = os.dup(log), os.dup(trace)
    for number, descriptor in ((1, log), (2, log), (TRACE_DESCRIPTOR, trace)):
        os.dup2(descriptor, number)
    os.chdir(request["directory"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


def report_first(status: int) -> None:
    """Report the runtime's counters before its first instruction: CLOCK_MONOTONIC, CPU time, waits for a processor."""
    cpu_ns, delay_ns, _ = Path("/proc/self/schedstat").read_text().split()
    os.write(status, f"began {time.monotonic_ns()} {cpu_ns} {delay_ns}\n".encode())


def run_forked(request: dict[str, Any]) -> NoReturn:
    """Run a runtime as a fork of the template, as if its last argument had been started as a program."""
    os.closerange(TRACE_DESCRIPTOR + 1, 4096)
    os.environ.clear()
    os.environ.update(request["environment"])
    program = request["arguments"][-1]
    sys.path.insert(0, os.path.dirname(program))
    sys.argv = [program]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from runpy import run_path

    status = 1
    try:
        run_path(program, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(status)


def end_orphans() -> None:
    """Kill the processes that the runtime left. This subreaper inherited them, because no namespace ends them."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while orphans := children.read_text().split():
        for orphan in orphans:
            os.kill(int(orphan), signal.SIGKILL)
        os.wait()


def run_init(
    request: dict[str, Any], channel: socket.socket, template: bool, log: int, trace: int, status: int
) -> NoReturn:
    """Run as the init of one environment; never return."""
    try:
        channel.close()
        check(LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "parent death signal")
        check(LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        groups = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in request["join"]]
        if request["mode"]:
            build_root(request)
        else:
            os.close(open_directory(request["code"]))
        runtime = os.fork()
        if runtime == 0:
            become_runtime(request, log, trace, groups)
            report_first(status)
            if template and request["forked"]:
                run_forked(request)
            os.execve(request["arguments"][0], request["arguments"], request["environment"])
        for descriptor in (log, trace, *groups):
            os.close(descriptor)
        while True:
            pid, ended = os.wait()
            if pid == runtime:
                if not request["mode"]:
                    end_orphans()
                os.write(status, f"exited {ended}\n".encode())
                os._exit(0)
    except BaseException as error:  # report any error to the emulator, and never let a second spawner run on
        os.write(status, f"failed {error}\n".encode())
    finally:
        os._exit(1)


def keep_files(request: dict[str, Any]) -> None:
    """Mount a directory that becomes /tmp, unless this environment had a sandbox before: a reset keeps its files.

    The mount is in the spawner's own mount namespace. The kernel removes it with its directory, or with the spawner.
    """
    if not os.path.ismount(request["tmp"]):
        options = f"mode=1777,size={request['ephemeral_mb']}m"
        mount("tmpfs", request["tmp"], "tmpfs", MS_NOSUID | MS_NODEV, options)


def spawn(request: dict[str, Any], channel: socket.socket, template: bool, log: int, trace: int, status: int) -> None:
    """Fork the init of one environment and report its process id."""
    if request["mode"]:
        keep_files(request)
    pid = fork_into(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID) if request["mode"] else os.fork()
    if pid == 0:
        run_init(request, channel, template, log, trace, status)
    os.write(status, f"started {pid}\n".encode())


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Receive one request and its descriptors; programs that are started later don't inherit them."""
    message, descriptors, _flags, _address = socket.recv_fds(channel, MESSAGE_BYTES, 3)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # Python 3.11 ignores recv_fds's flags
    return message, descriptors


def enter_user_namespace() -> None:
    """Become root of a new user namespace, in which the other namespaces need no privileges."""
    uid, gid = os.getuid(), os.getgid()
    check(LIBC.unshare(CLONE_NEWUSER), "unshare of the user namespace")
    map_ids(0, uid, gid)


def enter_mount_namespace() -> None:
    """Enter a mount namespace that still sees the host's mounts come and go."""
    check(LIBC.unshare(CLONE_NEWNS), "unshare of the mount namespace")
    mount("", "/", "", MS_REC | MS_SLAVE)


def main(descriptor: int, mode: str, modules: str) -> int:
    """Serve requests until the emulator closes its end of the socket, or ends."""
    # Ignoring SIGCHLD makes the kernel reap inits; the status pipe reports their end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    try:
        if mode == "user":
            enter_user_namespace()
        if mode:
            enter_mount_namespace()
    except OSError as error:
        channel.send(str(error).encode())
        return 1
    for module in filter(None, modules.split(",")):
        try:
            __import__(module)
        except Exception as error:  # a module may raise anything while it is imported
            channel.send(f"{module}: {error}".encode())
            return 1
    # Libraries with threads (OpenBLAS in numpy) stop them before a fork and restart them when needed. A clone
    # doesn't notify the library, so an init that forked its runtime would wait for threads that it lacks.
    if modules and os.fork() == 0:
        os._exit(0)
    if modules:
        # Keep the template's objects out of garbage collection in forks, because collecting would copy their pages.
        gc.freeze()
    channel.send(b"ready")
    while True:
        message, descriptors = receive(channel)
        if not message:
            return 0
        try:
            spawn(json.loads(message), channel, bool(modules), *descriptors)
        except Exception as error:  # one failed request must not end all environments
            if len(descriptors) == 3:
                os.write(descriptors[-1], f"failed {error}\n".encode())
        for received in descriptors:
            os.close(received)


if __name__ == "__main__":
    with suppress(BrokenPipeError, ConnectionResetError):  # the emulator ended before it got the answer
        sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
