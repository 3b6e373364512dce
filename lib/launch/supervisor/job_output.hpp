// Where the ranks' output goes: each rank's log files get its bytes as they arrive; the terminal, and with it the job's
// console log, get lines prefixed with "host:rank| " (a world of one: the bytes alone), with equal lines of several
// ranks merged into one on request. One thread; the file thread writes the files.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/color.hpp"
#include "base/log.hpp"
#include "launch/channel/message.hpp"
#include "launch/jobs/console_log.hpp"
#include "launch/plan/launch_plan.hpp"
#include "launch/supervisor/rank_logs.hpp"
#include "launch/terminal/escape_state.hpp"
#include "launch/terminal/line_deduplicator.hpp"
#include "launch/terminal/line_splitter.hpp"
#include "launch/terminal/live_line.hpp"
#include "launch/terminal/live_records.hpp"
#include "launch/terminal/tail.hpp"
#include "launch/terminal/terminal.hpp"

namespace dslaunch::launch {

struct OutputOptions {
  FileThread* files = nullptr;  // never null; outlives the output
  bool out_to_err = false;      // standard output is reserved for the JSON document (--json)
  bool hide_out = false;        // --quiet: the ranks' standard output goes to their logs only
  bool has_terminal = true;     // else the console log is the only destination (--detach)
  bool fold = false;            // merges equal lines of several ranks
  bool live = false;            // rank 0's standard output has the records of a live line
  ColorChoice color = ColorChoice::kAuto;
  ConsoleLog* console = nullptr;  // gets everything that the terminal gets; null: none. Outlives the output.
};

class JobOutput {
 public:
  // The plan outlives this.
  JobOutput(const LaunchPlan& plan, OutputOptions options);

  // Creates the ranks' log files. Throws UserError(73).
  void open_logs();
  void take(const RankOutput& output);
  // The rank has ended: shows its last line even if that has no newline.
  void finish(int rank);
  // A line of dslaunch itself, on standard error.
  void print_line(std::string_view text) { print_text(fmt_line(text)); }
  // The same for a line that does not report an error: --quiet omits it.
  void info(std::string_view text) {
    if (log::level() <= log::Level::kInfo) print_line(text);
  }
  void warn(const std::string& error) {
    if (log::level() <= log::Level::kWarning) print_line("warning: " + error);
  }
  // dslaunch's own text, whole lines, on standard error: after everything that the ranks have written so far.
  void print_text(std::string_view text);
  // A document of dslaunch, on standard output.
  void print(std::string_view text) {
    end_open_line();
    erase_live();
    out_.write(text);
  }
  // In the loop, at next_turn() at the latest: shows lines that have waited long enough for equal lines.
  void poll_once();
  Deadline next_turn() const;

  bool has_log(int rank) const { return logs_.has_log(rank); }
  std::string output_tail(int rank) const { return ranks_[static_cast<size_t>(rank)].tail.lines(); }
  // Whether that is still among the last lines that were shown.
  bool shows_tail(int rank) const;
  // Bytes that the readers have not accepted yet.
  size_t num_pending() const { return out_.num_pending() + err_.num_pending(); }
  bool readers_keep_up() const { return num_pending() < kMaxPendingBytes; }
  // Without room, for readers or for files, the agents, and then the ranks, have to wait.
  bool has_room() const { return readers_keep_up() && (dropped_files_ || options_.files->has_room()); }
  // Drops what waits for readers, and what ranks write from now on until the readers have read dslaunch's own messages:
  // at once, or only for readers that accepted nothing within their timeout. Warns once.
  void drop_slow_readers(bool at_once = false);
  Deadline readers_deadline() const;
  // The readers' timeout from now on; it starts again whenever they have accepted something.
  void set_timeout(std::chrono::milliseconds time);
  // For stalled files: drops what ranks write while the files have no room. Warns once.
  void drop_files();
  // True when the files have accepted everything.
  bool files_keep_up() const { return options_.files->idle(); }
  Terminal& out() { return out_; }
  Terminal& err() { return err_; }

 private:
  static constexpr size_t kMaxPendingBytes = 8U << 20;

  struct RankStreams {
    LineSplitter out, err;
    Tail tail;
    bool visible = true;   // --local_ranks_filter
    size_t num_lines = 0;  // that were shown when it had written to its standard error last
  };
  static std::string fmt_line(std::string_view text);
  bool shows(int rank, Stream stream) const;
  bool skips_files() const { return dropped_files_ && !options_.files->has_room(); }
  void take_record(char kind, std::string_view text);
  void take_text(int rank, Stream stream, std::string_view bytes);
  void show_pieces(int rank, Stream stream, LineSplitter& splitter, std::string_view bytes);
  void end_live();
  bool may_draw_live() const;
  void draw_live();
  void erase_live();
  void write(Terminal& terminal, std::string_view lines);
  void show(Stream stream, std::string_view text);
  void keep(Stream stream, std::string_view text);
  void show(const std::vector<LineDeduplicator::Shown>& lines);
  Terminal& reader_of(Stream stream);
  void end_open_line();
  void end_open_escape();

  OutputOptions options_;
  RankLogs logs_;
  std::vector<std::string> idle_choices_;  // warnings for the user about options without effect
  std::deque<RankStreams> ranks_;          // by rank
  std::string prefix_of_rank_0_;
  LiveRecords records_;  // of rank 0
  LiveLine live_;        // on out_
  std::optional<LineDeduplicator> deduplicator_;
  size_t num_lines_ = 0;             // shown
  std::optional<Stream> open_line_;  // the last shown bytes did not end a line here, as a single rank's bytes may
  std::optional<std::pair<int, Stream>> open_bar_;  // whose piece they are, if a carriage return has ended it
  EscapeState escapes_;                             // of everything shown
  const std::string job_;                           // for hints
  bool dropped_reader_ = false, dropped_files_ = false;
  // Standard output and error are one terminal, file or pipe: everything goes to `out_`, which keeps the order.
  const bool one_reader_;
  Terminal out_, err_;
  const bool colors_out_, colors_err_;
};

}  // namespace dslaunch::launch
