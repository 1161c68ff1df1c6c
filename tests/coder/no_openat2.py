"""no_openat2.py COMMAND...: runs it where openat2() is ENOSYS, as a sandbox with a writable folder of the host has it."""
import ctypes
import os
import platform
import struct
import sys

NR = 437
ENOSYS = 38


def instruction(code, jt, jf, k):
    return struct.pack("HBBI", code, jt, jf, k)


program = b"".join([
    instruction(0x20, 0, 0, 0),                      # the number of the call
    instruction(0x15, 0, 1, NR),                     # openat2?
    instruction(0x06, 0, 0, 0x00050000 | ENOSYS),    # an error
    instruction(0x06, 0, 0, 0x7fff0000),             # allowed
])
buffer = ctypes.create_string_buffer(program)
fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, fprog, 0, 0):
    sys.exit("no_openat2: %s on %s" % (os.strerror(ctypes.get_errno()), platform.machine()))
os.execv(sys.argv[1], sys.argv[1:])
