"""A filter that refuses the kernel's keyrings: no namespace separates root's inside from root's outside.

Everything else is allowed: what matters is refused by capabilities, and a filter that guesses breaks tasks.
"""

import ctypes
import errno
import os
import struct

from harbor_assets.sandboxes.process.inside import calls

# architecture (linux/audit.h) -> (add_key, request_key, keyctl)
_KEYS = {
    0xC000003E: (248, 249, 250),  # x86-64
    0x40000003: (286, 287, 288),  # i386
    0xC00000B7: (217, 218, 219),  # aarch64
    0x40000028: (309, 310, 311),  # arm
    0xC00000F3: (217, 218, 219),  # riscv64
}
_X32 = 0x40000000  # added to the numbers of x86-64's 32-bit cousin
_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06  # BPF_LD|W|ABS, JMP|JEQ|K, ALU|AND|K, RET|K
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4  # in struct seccomp_data


def program() -> bytes:
    """The filter as the kernel reads it: struct sock_filter (code, jump if true, jump if false, operand) each."""
    lines: list[tuple[int, int, int, int]] = []
    for architecture, numbers in _KEYS.items():
        lines.append((_LOAD, 0, 0, _ARCHITECTURE_AT))
        lines.append((_EQUAL, 0, len(numbers) + 4, architecture))  # else: on to the next architecture
        lines.append((_LOAD, 0, 0, _NUMBER_AT))
        lines.append((_AND, 0, 0, 0xFFFFFFFF & ~_X32))
        for position, number in enumerate(numbers):
            lines.append((_EQUAL, len(numbers) - position, 0, number))  # to the refusal
        lines.append((_RETURN, 0, 0, _ALLOW))
        lines.append((_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    lines.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def install() -> None:
    """Put this process and all it will start under the filter. Best effort: a kernel may have no filters."""
    if os.uname().machine not in ("x86_64", "i686", "aarch64", "armv7l", "riscv64"):
        return
    code = program()
    buffer = ctypes.create_string_buffer(code, len(code))
    calls.set_filter(len(code) // 8, ctypes.addressof(buffer))
