// On an externally started node, where the user does not see the launcher's terminal: copies the output sent to the
// launcher to the node's own standard output and error. As in the launcher, a slow reader or a stalled file eventually
// blocks the ranks, never the agent's loop. One thread.
#pragma once
#include <string_view>

#include "launch/channel/message.hpp"
#include "launch/event_loop/file_thread.hpp"
#include "launch/event_loop/poll_set.hpp"
#include "launch/event_loop/signal_inbox.hpp"
#include "launch/terminal/escape_state.hpp"
#include "launch/terminal/terminal.hpp"

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
  // Lines of dslaunch itself, on standard error, after everything that the ranks have written so far.
  void write_lines(std::string_view lines);
  // Without room the ranks have to wait.
  bool has_room() const;
  // In a loop: the descriptors to wait for, and the work when they are ready.
  void add_to(PollSet& polls);
  void poll_once();
  // Until reader and files have everything, or the deadline passes; stalled files have FileThread::kTimeout for it, and
  // a signal discards the rest.
  void drain(SignalInbox& signals, Deadline deadline);
  // Some written output did not arrive (yet).
  bool has_lost() const { return out_.has_lost() || err_.has_lost(); }

 private:
  Terminal& reader_of(Stream stream) { return stream == Stream::kErr && !one_reader_ ? err_ : out_; }

  FileThread& files_;
  const bool one_reader_;  // then everything goes to `out_`
  EscapeState escapes_;    // of everything shown
  Terminal out_, err_;
};

}  // namespace dslaunch::launch
