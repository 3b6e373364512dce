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
#include "base/scope_exit.hpp"
#include "comm/watchdog.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_deadlines.hpp"
#include "runtime/checkpoint/checkpoint_directory.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/content_hash.hpp"
#include "runtime/checkpoint/shard_file.hpp"
#include "runtime/checkpoint/weight_stream.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::milliseconds kPollInterval{500};
constexpr const char* kSaves = "checkpoint";  // the sequence of saves, for the watchdog

// Writes FOLDER/NAME, one safetensors file with all weights, and flushes it.
CheckpointFile write_full_weights(CheckpointReader& checkpoint, const FullWeights& how, const std::string& directory,
                                  const std::string& name) {
  WeightStream weights(checkpoint, {.dtype = how.float_dtype});
  ContentHash hash;
  const uint64_t bytes = write_safetensors(weights, weights.tensors(), directory + "/" + name,
                                           [&](const void* data, size_t size) { hash.update(data, size); });
  return {name, bytes, hash.hex(), ""};
}

// A rank's report to the others about its part of a phase: success, or the code and message of its failure.
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

// Runs one rank's part of a phase and turns an exception into a report.
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

// Prefix of the keys of one save. All ranks save in the same order, so the number identifies the save.
std::string keys_of_save(int64_t number) {
  return fmt::format("checkpoint/{}/", number);
}

// One save on one rank, from start to end.
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
  bool has_several_directories() const { return !options_.share.is_single_directory(); }

  void follow() {
    send_own_shard(write_own_shard(receive_directory()));
    throw_if_failed(receive_verdict("done"));
  }

  // All of a leader's work, in step with the other leaders. A failure of any phase is reported to all ranks before it
  // is thrown; a directory that is not published by then is removed before any rank learns of the failure.
  void lead() {
    std::optional<CheckpointDirectory> directory;
    set_storage_activity("creating a directory in", options_.dir);
    const Report created = report_of([&] { directory.emplace(options_.dir, part_.metadata.step); });
    send("directory", options_.rank, created);
    Report outcome = collect_shards(write_own_shard(created));
    if (!outcome.failed()) {
      erase_previous_save();
      outcome = agree("sealed", own_report_of([&] { seal(*directory, std::move(outcome.files)); }));
    }
    if (!outcome.failed()) {
      set_storage_activity("renaming", directory->path());
      outcome = own_report_of([&] { directory->publish(); });
    }
    if (outcome.failed()) directory.reset();
    throw_if_failed(agree("done", outcome));
    set_storage_activity("removing older checkpoints in", options_.dir);
    prune_checkpoints(options_.dir, part_.metadata.step, options_.keep_last);
  }

  Report receive_directory() {
    try {
      return receive("directory", options_.share.leader, deadline_);
    } catch (const TimeoutError& error) {
      return {ExitCode::kTimeout,
              fmt::format("timed out waiting for rank {} to create the directory ({})", options_.share.leader,
                          error.what()),
              {}};
    }
  }

  // A rank whose directory could not be created reports that as the result of its part, so that no other rank waits for
  // it.
  Report write_own_shard(const Report& created) const {
    if (created.failed()) return created;
    Report report;
    const Report written = report_of([&] {
      const std::string directory = writing_directory(options_.dir, part_.metadata.step);
      progress_.set("waiting for the copies from the device");
      if (part_.wait_for_copies) part_.wait_for_copies();
      set_storage_activity("writing", directory + "/" + shard_name(options_.rank));
      report.files.push_back(write_shard(directory, options_.rank, part_.pieces, part_.rng_state));
      if (has_several_directories()) report.files.back().host = options_.host;
    });
    return written.failed() ? written : report;
  }

  // Rank 0 formats the failures of other ranks, and therefore its own as well.
  Report own_report_of(const std::function<void()>& share) const {
    Report report = report_of(share);
    if (report.failed() && options_.rank == 0) report.message = describe_failure(0, report);
    return report;
  }

  // The files of all shards in rank order, or the first failure. Waits for all ranks, so that none is still writing
  // when a directory is removed.
  Report collect_shards(const Report& own) {
    if (options_.rank != 0) {
      send_own_shard(own);
      return receive_verdict("written");
    }
    mark_done();
    Report all;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      const Report report = rank == 0 ? own : receive_or_timeout("shard", rank, deadline_);
      if (report.failed() && !all.failed()) all = {report.code, describe_failure(rank, report), {}};
      all.files.insert(all.files.end(), report.files.begin(), report.files.end());
    }
    if (has_several_directories()) send("written", 0, all);
    return all;
  }

  // Every rank has reported its part of this save, so none still reads messages of the previous one. Otherwise a job
  // with many saves would fill the store.
  void erase_previous_save() {
    if (options_.rank == 0 && number_ > 0) store_.erase(keys_of_save(number_ - 1), with_minimum_time(deadline_));
  }

  // Returns when all leaders have reached this point; the first failure of any leader is returned to all.
  Report agree(const char* phase, const Report& own) {
    if (options_.rank != 0) {
      send(phase, options_.rank, own);
      return receive_verdict(phase);
    }
    const Deadline until = with_minimum_time(deadline_);
    Report all = own;
    for (const int leader : options_.share.leaders) {
      if (leader == 0) continue;
      const Report report = receive_or_timeout(phase, leader, until);
      if (report.failed() && !all.failed()) all = {report.code, describe_failure(leader, report), {}};
    }
    send(phase, 0, all);
    return all;
  }

  // Checks files that others have written, as this host sees them: a network file system may have directed the writers
  // to another directory of this name (the previous one, which has been renamed), and older checkpoints are removed for
  // this one.
  void require_shards(const CheckpointDirectory& directory, const std::vector<CheckpointFile>& files) const {
    for (const auto& file : files) {
      const std::string path = directory.path() + "/" + file.name;
      std::error_code error;
      const auto bytes = std::filesystem::file_size(path, error);
      if (!error && bytes == file.bytes) continue;
      throw Error(ExitCode::kIoError,
                  fmt::format("'{}' was written with {} bytes and {} when all ranks had finished. Do all hosts see the "
                              "same directory there?",
                              path, file.bytes, error ? "was missing" : fmt::format("had {}", bytes)));
    }
  }

  void seal(CheckpointDirectory& directory, std::vector<CheckpointFile> files) const {
    set_storage_activity("finishing", directory.path());
    if (!has_several_directories()) require_shards(directory, files);
    Manifest manifest{part_.metadata, options_.world_size, std::move(files)};
    if (!part_.skeleton.empty()) manifest.files.push_back(directory.add_skeleton(part_.skeleton));
    if (part_.full_weights) {
      CheckpointReader written(directory.path(), manifest);
      manifest.files.push_back(write_full_weights(written, *part_.full_weights, directory.path(), kFullWeightsName));
    }
    directory.seal(manifest, part_.best);
  }

  void set_storage_activity(const char* doing, const std::string& path) const {
    progress_.set(fmt::format("{} '{}'. Is its storage working?", doing, path));
  }

  std::string describe_failure(int rank, const Report& report) const {
    return fmt::format("checkpoint of step {}: rank {}: {}; earlier checkpoints are unchanged", part_.metadata.step,
                       rank, report.message);
  }

  Report receive_or_timeout(const char* phase, int rank, Deadline until) {
    try {
      return receive(phase, rank, until);
    } catch (const TimeoutError& error) {
      return {ExitCode::kTimeout, fmt::format("timed out waiting for its part ({})", error.what()), {}};
    }
  }

  // Rank 0's verdict on a phase, which it may send at the very end of the deadline.
  Report receive_verdict(const char* phase) {
    try {
      return receive(phase, 0, verdict_deadline(deadline_));
    } catch (const TimeoutError& error) {
      throw TimeoutError(describe_failure(
          0, {ExitCode::kTimeout, fmt::format("timed out waiting for its result ({})", error.what()), {}}));
    }
  }

  std::string key(const char* phase, int rank) const {
    return fmt::format("{}{}/{}", keys_of_save(number_), phase, rank);
  }
  void send(const char* phase, int rank, const Report& report) {
    store_.set(key(phase, rank), to_text(report), with_minimum_time(deadline_));
  }
  void send_own_shard(const Report& own) {
    send("shard", options_.rank, own);
    mark_done();
  }
  void mark_done() const {
    if (options_.watchdog != nullptr) options_.watchdog->mark_done(kSaves, static_cast<uint64_t>(number_ + 1));
  }
  // Waits in short intervals, to notice that the last deadline was set, or that a watchdog has ended the job.
  Report receive(const char* phase, int rank, Deadline until) {
    const auto awaited = options_.rank == 0 ? fmt::format("waiting for the part of rank {}", rank) : std::string();
    progress_.set(awaited, /*waits_for_ranks=*/true);
    const ScopeExit over([&] { progress_.set(awaited); });
    const auto begin = Deadline::Clock::now();
    const auto poll_interval = std::min(kPollInterval, options_.final_timeout);
    for (;;) {
      if (const auto verdict = options_.watchdog ? options_.watchdog->verdict() : std::nullopt) throw *verdict;
      const auto left = std::min(until.left(), last_deadline_.load().left());
      try {
        return report_from(store_.get(key(phase, rank), Deadline::after(std::min(left, poll_interval))));
      } catch (const TimeoutError& error) {
        if (left > poll_interval) continue;
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
  last_deadline_ = Deadline::after(options_.final_timeout);
  if (thread_.joinable()) wait_for_thread();
}

void CheckpointWriter::save(CheckpointPart part) {
  finish();
  saving_step_ = part.metadata.step;
  std::packaged_task<void()> work([this, number = num_saves_++, part = std::move(part)]() mutable {
    const CheckpointPart own = std::move(part);  // freed with the save: the task itself lives until finish()
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

// A run that blocks without a message would be taken for a hang. While the save waits for other ranks, the watchdog
// says it and limits it.
void CheckpointWriter::wait_for_thread() {
  const auto begin = Deadline::Clock::now();
  auto warn_at = options_.warn_after;
  std::optional<comm::Watchdog::PartWait> waiting;
  while (ended_.wait_for(std::min(kPollInterval, options_.warn_after)) == std::future_status::timeout) {
    if (options_.watchdog == nullptr || !progress_.waits_for_ranks()) {
      waiting.reset();
    } else if (!waiting) {
      waiting.emplace(*options_.watchdog, kSaves, static_cast<uint64_t>(num_saves_),
                      fmt::format("the checkpoint of step {}", saving_step_));
    }
    const auto waited = Deadline::Clock::now() - begin;
    const std::string text = progress_.text();
    if (waited < warn_at || text.empty() || waiting) continue;
    warn_at *= 2;
    log::warning("training blocked for {1:.0f} s so far by the checkpoint of step {0}: {2}", saving_step_,
                 std::chrono::duration<double>(waited).count(), text);
  }
  thread_.join();
}

}  // namespace dslaunch::runtime
