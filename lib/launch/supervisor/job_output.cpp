#include "launch/supervisor/job_output.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "base/live_progress.hpp"
#include "base/printable.hpp"

namespace dslaunch::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLiveTurn = 300ms;
// A reader sees as many without scrolling.
constexpr size_t kLinesInView = 15;
// The limit for all lines without an end together, both streams of every rank.
constexpr size_t kMaxPartialBytes = 512U << 20, kMaxLineBytes = 64U << 20, kMinLineBytes = 256U << 10;

size_t num_lines_in(std::string_view text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

bool passes(const std::vector<int>& filter, int local_rank) {
  return filter.empty() || std::find(filter.begin(), filter.end(), local_rank) != filter.end();
}

}  // namespace

JobOutput::JobOutput(const LaunchPlan& plan, OutputOptions options)
    : options_(options),
      logs_(plan, *options.files),
      job_(plan.label()),
      one_reader_(have_one_reader(1, 2)),
      out_(options.has_terminal ? 1 : -1, options.files),
      err_(options.has_terminal ? 2 : -1, options.files),
      colors_out_(options.has_terminal && uses_color(options.color, 1)),
      colors_err_(options.has_terminal && uses_color(options.color, 2)) {
  const size_t num_streams = 2 * static_cast<size_t>(std::max(1, plan.world_size()));
  const size_t longest = std::clamp(kMaxPartialBytes / num_streams, kMinLineBytes, kMaxLineBytes);
  std::vector<std::string> prefixes;
  std::set<int> local_ranks;
  int num_visible = 0;
  for (const auto& node : plan.nodes) {
    for (const auto& rank : node.ranks) {
      prefixes.push_back(plan.world_size() == 1 ? "" : fmt::format("{}:{}| ", node.host, rank.rank));
      bool visible = passes(plan.output.local_ranks, rank.local_rank);
      num_visible += visible ? 1 : 0;
      local_ranks.insert(rank.local_rank);
      ranks_.push_back({LineSplitter(prefixes.back(), longest), LineSplitter(prefixes.back(), longest), {}, visible});
    }
  }
  if (!prefixes.empty()) prefix_of_rank_0_ = prefixes.front();
  if (plan.restart_count == 0) idle_choices_ = idle_choices(plan.output, local_ranks);
  if (options_.fold && num_visible > 1) deduplicator_.emplace(std::move(prefixes), num_visible);
}

void JobOutput::open_logs() {
  logs_.open();
  if (std::string error = logs_.take_error(); !error.empty()) warn(error);
  for (const auto& line : idle_choices_) warn(line);
}

void JobOutput::take(const RankOutput& output) {
  const bool has_records = options_.live && output.rank == 0 && output.stream == Stream::kOut;
  if (!has_records) return take_text(output.rank, output.stream, output.bytes);
  records_.cut(output.bytes, [this](char kind, std::string_view text) { take_record(kind, text); });
}

void JobOutput::take_record(char kind, std::string_view text) {
  if (kind == 0) return take_text(0, Stream::kOut, text);
  if (kind == live::kPlainLine) {
    const std::string line = std::string(text) + "\n";
    if (!skips_files()) logs_.write(0, Stream::kOut, line);
    if (options_.console != nullptr && !skips_files() && shows(0, Stream::kOut)) {
      options_.console->append(prefix_of_rank_0_ + line);
    }
  }
  if (kind == live::kEnd) end_live();
  if (kind != live::kProgress || !shows(0, Stream::kOut)) return;
  const auto progress = live::parse_progress(text);
  if (!progress) return;
  erase_live();
  live_.set(*progress);
  draw_live();
}

void JobOutput::take_text(int number, Stream stream, std::string_view bytes) {
  RankStreams& rank = ranks_[static_cast<size_t>(number)];
  if (!skips_files()) logs_.write(number, stream, bytes);
  bool is_err = stream == Stream::kErr;
  if (is_err) rank.tail.append(bytes);
  if (is_err) rank.num_lines = num_lines_ + num_lines_in(bytes);
  if (!shows(number, stream)) return;
  LineSplitter& splitter = is_err ? rank.err : rank.out;
  if (!deduplicator_) return show_pieces(number, stream, splitter, bytes);
  auto now = Deadline::Clock::now();
  splitter.cut(bytes, [&](std::string_view line) { deduplicator_->add(number, stream, line, now); });
  show(deduplicator_->take(now));
}

void JobOutput::show_pieces(int rank, Stream stream, LineSplitter& splitter, std::string_view bytes) {
  if (reader_of(stream).is_terminal()) return show(stream, splitter.take(bytes));
  const std::pair writer(rank, stream);
  bool in_bar = open_bar_ == writer;
  const std::string pieces = splitter.take(bytes, in_bar);
  if (pieces.empty()) return;
  show(stream, pieces);
  open_bar_ = in_bar ? std::optional(writer) : std::nullopt;
}

// Before lines of ours or of ranks: they then stand above the live line, which is drawn again below them. Not while a
// rank's line is open, nor for a reader that is behind.
bool JobOutput::may_draw_live() const {
  return out_.is_terminal() && !open_line_ && !escapes_.is_open() && !out_.is_given_up() && out_.num_pending() == 0;
}

void JobOutput::draw_live() {
  if (may_draw_live() && live_.has_progress()) out_.write(live_.draw(columns_of(out_.fd())));
}

void JobOutput::erase_live() {
  if (live_.is_drawn()) out_.write(live_.erase(columns_of(out_.fd())));
}

// What the line showed last stays on the screen.
void JobOutput::end_live() {
  if (deduplicator_) show(deduplicator_->take_all());
  if (live_.has_progress() && may_draw_live()) out_.write(live_.keep(columns_of(out_.fd())));
  live_ = {};
}

void JobOutput::write(Terminal& terminal, std::string_view lines) {
  const bool colors = &terminal == &out_ ? colors_out_ : colors_err_;
  if (&terminal == &out_) erase_live();
  if (!colors) return terminal.write(lines);
  terminal.write(with_color(lines));
}

bool JobOutput::shows_tail(int rank) const {
  const Terminal& reader = one_reader_ ? out_ : err_;
  return shows(rank, Stream::kErr) && !reader.is_given_up() &&
         num_lines_ <= ranks_[static_cast<size_t>(rank)].num_lines + kLinesInView;
}

bool JobOutput::shows(int rank, Stream stream) const {
  if (stream == Stream::kOut && options_.hide_out) return false;
  return ranks_[static_cast<size_t>(rank)].visible && !logs_.redirected(rank, stream);
}

void JobOutput::finish(int rank) {
  RankStreams& streams = ranks_[static_cast<size_t>(rank)];
  if (options_.live && rank == 0) {
    records_.finish([this](char kind, std::string_view text) { take_record(kind, text); });
    end_live();
  }
  if (!deduplicator_) {
    for (Stream stream : {Stream::kOut, Stream::kErr}) {
      LineSplitter& splitter = stream == Stream::kErr ? streams.err : streams.out;
      show(stream, open_bar_ == std::pair(rank, stream) ? splitter.finish_line() : splitter.finish());
    }
    return;
  }
  auto now = Deadline::Clock::now();
  if (std::string line = streams.out.finish_line(); !line.empty()) deduplicator_->add(rank, Stream::kOut, line, now);
  if (std::string line = streams.err.finish_line(); !line.empty()) deduplicator_->add(rank, Stream::kErr, line, now);
  if (streams.visible) deduplicator_->rank_ended(rank);
  show(deduplicator_->take(now));  // at the end of the last rank, everything
}

std::string JobOutput::fmt_line(std::string_view text) {
  return fmt::format("dslaunch: {}\n", text);
}

void JobOutput::print_text(std::string_view text) {
  const std::string lines = printable_lines(text);
  if (deduplicator_) show(deduplicator_->take_all());
  end_open_line();
  write(reader_of(Stream::kErr), lines);
  keep(Stream::kErr, lines);
  draw_live();
}

void JobOutput::poll_once() {
  if (deduplicator_) show(deduplicator_->take(Deadline::Clock::now()));
  if (!live_.is_outdated(columns_of(out_.fd()))) return;
  erase_live();
  draw_live();
}

// While the live line is there, often enough to follow a change of the terminal's width.
Deadline JobOutput::next_turn() const {
  const Deadline lines = deduplicator_ ? deduplicator_->next(Deadline::Clock::now()) : Deadline::never();
  return live_.is_drawn() ? std::min(lines, Deadline::after(kLiveTurn)) : lines;
}

Terminal& JobOutput::reader_of(Stream stream) {
  return !one_reader_ && (stream == Stream::kErr || options_.out_to_err) ? err_ : out_;
}

void JobOutput::show(Stream stream, std::string_view text) {
  if (text.empty()) return;
  Terminal& reader = reader_of(stream);
  // Only whole lines of standard error are ours to colour.
  const bool may_color = stream == Stream::kErr && text.back() == '\n' && !open_line_;
  if (!reader.is_given_up()) {
    if (&reader == &out_) erase_live();
    may_color ? write(reader, text) : reader.write(text);
  }
  keep(stream, text);
  draw_live();
}

// Records what was shown, or would have been.
void JobOutput::keep(Stream stream, std::string_view text) {
  if (options_.console != nullptr && !skips_files()) options_.console->append(text);
  escapes_.take(text);
  num_lines_ += num_lines_in(text);
  if (!text.empty()) open_line_ = text.back() == '\n' ? std::nullopt : std::optional(stream);
}

// dslaunch's own text must not continue a line that a rank has begun.
void JobOutput::end_open_line() {
  end_open_escape();
  if (!open_line_) return;
  Terminal& ours = reader_of(Stream::kErr);
  if (&reader_of(*open_line_) == &ours) ours.write("\n");
  if (options_.console != nullptr) options_.console->append("\n");
  open_line_.reset();
  open_bar_.reset();
}

// Nor may an escape sequence that a rank has begun swallow it.
void JobOutput::end_open_escape() {
  if (!escapes_.is_open()) return;
  if (Terminal& ours = reader_of(Stream::kErr); ours.is_terminal()) ours.write(EscapeState::kEnd);
  if (options_.console != nullptr) options_.console->append(EscapeState::kEnd);
  escapes_.end();
}

// A write per line would be most of the work when ranks write many lines.
void JobOutput::show(const std::vector<LineDeduplicator::Shown>& lines) {
  std::string together;
  for (size_t i = 0; i < lines.size(); ++i) {
    together += lines[i].text;
    if (i + 1 < lines.size() && lines[i + 1].stream == lines[i].stream) continue;
    show(lines[i].stream, together);
    together.clear();
  }
}

void JobOutput::drop_slow_readers(bool at_once) {
  bool dropped = false;
  for (Terminal* terminal : {&out_, &err_}) {
    if (at_once ? terminal->num_pending() == 0 : !terminal->reader_deadline().passed()) continue;
    if (open_line_ && &reader_of(*open_line_) == terminal) open_line_.reset();
    terminal->give_up();
    if (terminal == &out_) live_.lose();
    escapes_.lose();
    dropped = true;
  }
  if (!dropped || dropped_reader_) return;
  dropped_reader_ = true;
  warn(fmt::format("the reader of the output has stopped reading: dropping its pending output{}",
                   options_.console == nullptr ? "" : fmt::format("; 'dslaunch logs {}' has it", job_)));
}

void JobOutput::set_timeout(std::chrono::milliseconds time) {
  out_.set_timeout(time);
  err_.set_timeout(time);
}

void JobOutput::drop_files() {
  if (std::exchange(dropped_files_, true)) return;
  warn("the job's output files stopped accepting data: ranks' output is lost until they accept data again");
}

Deadline JobOutput::readers_deadline() const {
  return std::min(out_.reader_deadline(), err_.reader_deadline());
}

}  // namespace dslaunch::launch
