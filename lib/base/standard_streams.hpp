// Ensures that the standard streams are open: cron jobs and careless daemons start programs without them.
#pragma once

namespace dslaunch {

// Opens /dev/null in place of each closed standard stream, so that no file, pipe or socket of ours gets its number and
// receives printed output. Call first in main, before any thread starts.
void open_standard_streams();

enum class OutputState {
  kWritten,
  kReaderClosed,  // the reader closed the stream: it had all it wanted
  kFailed,        // the output was lost although the reader is still there: a full disk
};
// Flushes standard output and returns whether everything that stdio wrote there arrived.
OutputState standard_output_state();

// Whether the reader of standard output has closed it.
bool standard_output_is_closed();

// Ends the process as SIGPIPE does (status 141 in a shell), without a message, also where the signal is ignored, as
// below Python, or cannot kill, as in pid 1 of a container.
[[noreturn]] void exit_as_sigpipe();

}  // namespace dslaunch
