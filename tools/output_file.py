"""What may stand where a finished file is renamed to."""
import errno
import os
import stat

from failure import Failure

KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISFIFO, "a pipe"),
         (stat.S_ISSOCK, "a socket"))
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def require_replaceable(path):
    """A rename would remove a device, or the link /dev/stdout, from the file system."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise cannot_write(path, error)
    for is_kind, name in KINDS:
        if is_kind(mode):
            raise Failure(73, f"cannot write '{path}': it is {name}, and the finished file would replace it; name a regular file")


def cannot_write(path, error):
    """The Failure of an OSError: 74 for a full or broken disk, else 73."""
    code = 74 if getattr(error, "errno", None) in FULL else 73
    return Failure(code, f"cannot write '{path}': {getattr(error, 'strerror', None) or error}")
