// What the launcher gets of this node's ranks, for the node's own standard output and error too: of an agent that came
// by itself, where nobody sees the launcher's terminal. As in the launcher, a reader who does not read and a file that
// stands still hold up the ranks in the end, never the agent's loop. One thread.
#pragma once
#include <string_view>

#include "launch/channel/message.hpp"
#include "launch/channel/poll_set.hpp"
#include "launch/escape_state.hpp"
#include "launch/file_thread.hpp"
#include "launch/signal_inbox.hpp"
#include "launch/terminal.hpp"

namespace dslaunch::launch {

class NodeEcho {
 public:
  // `files` outlives this.
  explicit NodeEcho(FileThread& files, int out = 1, int err = 2)
      : files_(files), one_reader_(have_one_reader(out, err)), out_(out, &files), err_(err, &files) {}

  void write(Stream stream, std::string_view bytes) {
    escapes_.take(bytes);
    reader_of(stream).write(bytes);
  }
  // Lines of our own, on standard error, behind everything that the ranks have written so far.
  void tell(std::string_view lines);
  // With no room left the ranks have to wait.
  bool has_room() const;
  // In a loop: what there is to wait for, and what to do when it came.
  void add_to(PollSet& polls);
  void poll_once();
  // Until reader and files have everything, or the deadline passes; files that stand still have FileThread::kTimeout
  // for it, and a signal spares the rest.
  void drain(SignalInbox& signals, Deadline deadline);
  // Something was written that did not arrive (yet).
  bool has_lost() const { return out_.has_lost() || err_.has_lost(); }

 private:
  Terminal& reader_of(Stream stream) { return stream == Stream::kErr && !one_reader_ ? err_ : out_; }

  FileThread& files_;
  const bool one_reader_;  // then all goes into `out_`
  EscapeState escapes_;    // of all that was shown
  Terminal out_, err_;
};

}  // namespace dslaunch::launch
