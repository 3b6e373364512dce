#include "runtime/checkpoint/checkpoint_writer.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

// What a rank tells the others about its part of a phase: it went well, or with which code and words it did not.
struct Report {
  ExitCode code = ExitCode::kSuccess;
  std::string message;
  std::vector<CheckpointFile> files;

  bool failed() const { return code != ExitCode::kSuccess; }
};

std::string to_text(const Report& report) {
  Json json{{"code", to_int(report.code)}, {"message", report.message}, {"files", Json::array()}};
  for (const auto& file : report.files) json["files"].push_back({file.name, file.bytes, file.xxh3_128, file.host});
  return dump_json(json);
}

Report report_from(const std::string& text) {
  const Json json = Json::parse(text);
  Report report{static_cast<ExitCode>(json.at("code").get<int>()), json.at("message").get<std::string>(), {}};
  for (const auto& file : json.at("files")) {
    report.files.push_back({file.at(0).get<std::string>(), file.at(1).get<uint64_t>(), file.at(2).get<std::string>(),
                            file.at(3).get<std::string>()});
  }
  return report;
}

void throw_if_failed(const Report& report) {
  if (report.failed()) throw Error(report.code, report.message);
}

// Runs one rank's share of a phase and turns what it throws into a report.
Report report_of(const std::function<void()>& share) {
  try {
    share();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.what(), {}};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, error.what(), {}};
  }
}

// What the ranks tell each other in one save. All save in the same order, so the number names it.
std::string keys_of_save(int64_t number) {
  return fmt::format("checkpoint/{}/", number);
}

// One save of one rank, start to end.
class Save {
 public:
  Save(const CheckpointWriterOptions& options, const std::atomic<Deadline>& last_deadline, SaveProgress& progress,
       rendezvous::Store& store, int64_t number, const CheckpointPart& part)
      : options_(options),
        last_deadline_(last_deadline),
        progress_(progress),
        store_(store),
        number_(number),
        part_(part),
        deadline_(Deadline::after(options.timeout)) {}

  void run() {
    if (options_.rank == options_.share.leader) {
      lead();
    } else {
      follow();
    }
  }

 private:
  bool has_several_folders() const { return !options_.share.is_one_folder(); }

  void follow() {
    tell("shard", options_.rank, write_own_shard(hear_of_folder()));
    throw_if_failed(hear_verdict("done"));
  }

  // All of a leader's work, in step with the other leaders. A failure of any phase is told to all ranks before it is
  // thrown; a folder that is not published by then is gone before anybody hears of it.
  void lead() {
    std::optional<CheckpointFolder> folder;
    at_storage("making its folder in", options_.dir);
    const Report created = report_of([&] { folder.emplace(options_.dir, part_.metadata.step); });
    tell("folder", options_.rank, created);
    Report outcome = collect_shards(write_own_shard(created));
    if (!outcome.failed()) {
      forget_save_before();
      outcome = agree("sealed", own_report_of([&] { seal(*folder, std::move(outcome.files)); }));
    }
    if (!outcome.failed()) {
      at_storage("renaming", folder->path());
      outcome = own_report_of([&] { folder->publish(); });
    }
    if (outcome.failed()) folder.reset();
    throw_if_failed(agree("done", outcome));
    at_storage("removing older ones in", options_.dir);
    folder->prune(options_.keep_last);
  }

  Report hear_of_folder() {
    try {
      return hear("folder", options_.share.leader, deadline_);
    } catch (const TimeoutError& error) {
      return {
          ExitCode::kTimeout,
          fmt::format("has waited in vain for rank {} to make the folder ({})", options_.share.leader, error.what()),
          {}};
    }
  }

  // A rank whose folder could not be made says so as its part: the others wait for nobody.
  Report write_own_shard(const Report& created) const {
    if (created.failed()) return created;
    Report report;
    const Report written = report_of([&] {
      const std::string folder = writing_folder(options_.dir, part_.metadata.step);
      progress_.set("its copies are still on their way from the device");
      if (part_.wait_for_copies) part_.wait_for_copies();
      at_storage("writing", folder + "/" + shard_name(options_.rank));
      report.files.push_back(write_shard(folder, options_.rank, part_.pieces, part_.rng_state));
      if (has_several_folders()) report.files.back().host = options_.host;
    });
    return written.failed() ? written : report;
  }

  // Rank 0 puts the failures of others in words, and so its own.
  Report own_report_of(const std::function<void()>& share) const {
    Report report = report_of(share);
    if (report.failed() && options_.rank == 0) report.message = in_words(0, report);
    return report;
  }

  // All shards' files in the order of ranks, or the first failure. Waits for all ranks, so that nobody writes any more
  // when a folder is removed.
  Report collect_shards(const Report& own) {
    if (options_.rank != 0) {
      tell("shard", options_.rank, own);
      return hear_verdict("written");
    }
    Report all;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const Report report = rank == 0 ? own : hear_in_time("shard", rank, deadline_);
      if (report.failed() && !all.failed()) all = {report.code, in_words(rank, report), {}};
      all.files.insert(all.files.end(), report.files.begin(), report.files.end());
    }
    if (has_several_folders()) tell("written", 0, all);
    return all;
  }

  // Every rank has told its part of this save, so none still reads what was told in the one before. A job of many saves
  // would fill the store.
  void forget_save_before() {
    if (options_.rank == 0 && number_ > 0) store_.erase(keys_of_save(number_ - 1), with_a_moment(deadline_));
  }

  // All leaders have come to this point; the first failure of any is everybody's.
  Report agree(const char* phase, const Report& own) {
    if (options_.rank != 0) {
      tell(phase, options_.rank, own);
      return hear_verdict(phase);
    }
    const Deadline until = with_a_moment(deadline_);
    Report all = own;
    for (const int leader : options_.share.leaders) {
      if (leader == 0) continue;
      const Report report = hear_in_time(phase, leader, until);
      if (report.failed() && !all.failed()) all = {report.code, in_words(leader, report), {}};
    }
    tell(phase, 0, all);
    return all;
  }

  // What others have written, as this host sees it: a network file system may have led them into another folder of this
  // name (the one before, which has been renamed), and older checkpoints go for this one.
  void require_shards(const CheckpointFolder& folder, const std::vector<CheckpointFile>& files) const {
    for (const auto& file : files) {
      const std::string path = folder.path() + "/" + file.name;
      std::error_code error;
      const auto bytes = std::filesystem::file_size(path, error);
      if (!error && bytes == file.bytes) continue;
      throw Error(ExitCode::kIoError,
                  fmt::format("'{}' was written with {} bytes and {} when all ranks had ended. Do all hosts see one "
                              "folder there?",
                              path, file.bytes, error ? "was not there" : fmt::format("had {}", bytes)));
    }
  }

  void seal(CheckpointFolder& folder, std::vector<CheckpointFile> files) const {
    at_storage("finishing", folder.path());
    if (!has_several_folders()) require_shards(folder, files);
    Manifest manifest{part_.metadata, options_.world_size, std::move(files)};
    if (!part_.skeleton.empty()) manifest.files.push_back(folder.add_skeleton(part_.skeleton));
    if (part_.whole_weights) {
      CheckpointReader written(folder.path(), manifest);
      manifest.files.push_back(write_whole_weights(written, *part_.whole_weights, folder.path(), kWholeWeightsName));
    }
    folder.seal(manifest);
  }

  void at_storage(const char* doing, const std::string& path) const {
    progress_.set(fmt::format("{} '{}'. Is the storage there at work?", doing, path));
  }

  std::string in_words(int rank, const Report& report) const {
    return fmt::format("checkpoint of step {}: rank {}: {}; the checkpoints before are untouched", part_.metadata.step,
                       rank, report.message);
  }

  Report hear_in_time(const char* phase, int rank, Deadline until) {
    try {
      return hear(phase, rank, until);
    } catch (const TimeoutError& error) {
      return {ExitCode::kTimeout, fmt::format("has not told the end of its part ({})", error.what()), {}};
    }
  }

  // What rank 0 says of a phase, which it may say at the end of everybody's time.
  Report hear_verdict(const char* phase) {
    try {
      return hear(phase, 0, to_hear_verdict(deadline_));
    } catch (const TimeoutError& error) {
      throw TimeoutError(
          in_words(0, {ExitCode::kTimeout, fmt::format("has not told what came of it ({})", error.what()), {}}));
    }
  }

  std::string key(const char* phase, int rank) const {
    return fmt::format("{}{}/{}", keys_of_save(number_), phase, rank);
  }
  void tell(const char* phase, int rank, const Report& report) {
    store_.set(key(phase, rank), to_text(report), with_a_moment(deadline_));
  }
  // In short waits, to see that the last deadline was set.
  Report hear(const char* phase, int rank, Deadline until) {
    progress_.set(options_.rank == 0 ? fmt::format("rank {} has not told the end of its part", rank) : "");
    const auto begin = Deadline::Clock::now();
    const auto a_while = std::min<std::chrono::milliseconds>(std::chrono::seconds(10), options_.last_patience);
    for (;;) {
      const auto left = std::min(until.left(), last_deadline_.load().left());
      try {
        return report_from(store_.get(key(phase, rank), Deadline::after(std::min(left, a_while))));
      } catch (const TimeoutError& error) {
        if (left > a_while) continue;
        const std::chrono::duration<double> waited = Deadline::Clock::now() - begin;
        throw TimeoutError(fmt::format("after {:.1f} s: {}", waited.count(), error.what()));
      }
    }
  }

  const CheckpointWriterOptions& options_;
  const std::atomic<Deadline>& last_deadline_;
  SaveProgress& progress_;
  rendezvous::Store& store_;
  const int64_t number_;
  const CheckpointPart& part_;
  const Deadline deadline_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options, rendezvous::Store& store)
    : options_(std::move(options)), store_(store) {}

CheckpointWriter::~CheckpointWriter() {
  last_deadline_ = Deadline::after(options_.last_patience);
  if (thread_.joinable()) wait_for_thread();
}

void CheckpointWriter::save(CheckpointPart part) {
  finish();
  saving_step_ = part.metadata.step;
  std::packaged_task<void()> work([this, number = num_saves_++, part = std::move(part)]() mutable {
    const CheckpointPart own = std::move(part);  // gone with the save: the task itself lives until finish()
    Save(options_, last_deadline_, progress_, store_, number, own).run();
  });
  ended_ = work.get_future();
  thread_ = std::thread(std::move(work));
  if (!options_.async) finish();
}

void CheckpointWriter::finish() {
  if (!thread_.joinable()) return;
  wait_for_thread();
  ended_.get();
  last_saved_step_ = saving_step_;
}

// A run that stands still without a word is taken for one that hangs.
void CheckpointWriter::wait_for_thread() {
  auto waited = std::chrono::milliseconds(0);
  for (auto next = options_.quiet_wait; ended_.wait_for(next) == std::future_status::timeout; next = waited) {
    waited += next;
    const std::string words = progress_.words();
    if (words.empty()) continue;
    log::warning("the run stands still for the checkpoint of step {}, for {:.0f} s so far: {}", saving_step_,
                 std::chrono::duration<double>(waited).count(), words);
  }
  thread_.join();
}

}  // namespace dslaunch::runtime
