#include "runtime/checkpoint/checkpoint_writer.hpp"

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "rendezvous/store.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/shard_file.hpp"

namespace dslaunch::runtime {
namespace {

using Json = nlohmann::json;

// What a rank tells the others about its part of a phase: it went well, or with which code and words it did not.
struct Report {
  ExitCode code = ExitCode::kSuccess;
  std::string message;
  CheckpointFile file;
};

std::string to_text(const Report& report) {
  return Json{{"code", to_int(report.code)},
              {"message", report.message},
              {"name", report.file.name},
              {"bytes", report.file.bytes},
              {"hash", report.file.xxh3_128}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

Report report_from(const std::string& text) {
  const Json json = Json::parse(text);
  return {static_cast<ExitCode>(json.at("code").get<int>()),
          json.at("message").get<std::string>(),
          {json.at("name").get<std::string>(), json.at("bytes").get<uint64_t>(), json.at("hash").get<std::string>()}};
}

void throw_if_failed(const Report& report) {
  if (report.code != ExitCode::kSuccess) throw Error(report.code, report.message);
}

// Runs one rank's share of a phase and turns what it throws into a report.
Report report_of(const std::function<CheckpointFile()>& share) {
  try {
    return {ExitCode::kSuccess, "", share()};
  } catch (const Error& error) {
    return {error.code(), error.what(), {}};
  } catch (const std::exception& error) {
    return {ExitCode::kInternal, error.what(), {}};
  }
}

// One save of one rank, start to end.
class Save {
 public:
  Save(const CheckpointWriterOptions& options, rendezvous::Store& store, std::string keys, const CheckpointPart& part)
      : options_(options),
        store_(store),
        keys_(std::move(keys)),
        part_(part),
        deadline_(Deadline::after(options.timeout)) {}

  void run() {
    if (options_.rank == 0) {
      lead();
    } else {
      follow();
    }
  }

 private:
  // All of rank 0's work. A failure of any phase is told to all ranks before it is thrown.
  void lead() {
    std::optional<CheckpointFolder> folder;
    const Report created = report_of([&] {
      folder.emplace(options_.dir, part_.metadata.step);
      return CheckpointFile{};
    });
    tell("folder", created);
    throw_if_failed(created);

    const Report own = report_of([&] { return write_own_shard(); });
    const Report published = report_of([&] {
      folder->publish(collect(own, *folder));
      return CheckpointFile{};
    });
    if (published.code != ExitCode::kSuccess) folder.reset();  // gone before anybody hears of the failure
    tell("done", published);
    throw_if_failed(published);
    folder->prune(options_.keep_last);
  }

  void follow() {
    throw_if_failed(hear("folder"));
    tell(shard_key(options_.rank), report_of([&] { return write_own_shard(); }));
    throw_if_failed(hear("done"));
  }

  CheckpointFile write_own_shard() const {
    return write_shard(writing_folder(options_.dir, part_.metadata.step), options_.rank, part_.pieces, part_.rng_state);
  }

  // Waits for all ranks, so that nobody writes any more when the folder is removed; then the first failure counts.
  Manifest collect(const Report& own, CheckpointFolder& folder) {
    Manifest manifest{part_.metadata, options_.world_size, {}};
    std::optional<Report> failed;
    for (int rank = 0; rank < options_.world_size; ++rank) {
      Report report = rank == 0 ? own : hear_shard(rank);
      if (report.code != ExitCode::kSuccess && !failed) {
        failed = Report{report.code,
                        fmt::format("checkpoint of step {}: rank {}: {}; the checkpoints before are untouched",
                                    part_.metadata.step, rank, report.message),
                        {}};
      }
      manifest.files.push_back(std::move(report.file));
    }
    if (failed) throw_if_failed(*failed);
    if (!part_.skeleton.empty()) manifest.files.push_back(folder.add_skeleton(part_.skeleton));
    return manifest;
  }

  Report hear_shard(int rank) {
    try {
      return hear(shard_key(rank));
    } catch (const TimeoutError& error) {
      return {ExitCode::kTimeout, fmt::format("has not told the end of its part ({})", error.what()), {}};
    }
  }

  static std::string shard_key(int rank) { return fmt::format("rank/{}", rank); }
  void tell(const std::string& phase, const Report& report) { store_.set(keys_ + phase, to_text(report), deadline_); }
  Report hear(const std::string& phase) { return report_from(store_.get(keys_ + phase, deadline_)); }

  const CheckpointWriterOptions& options_;
  rendezvous::Store& store_;
  const std::string keys_;
  const CheckpointPart& part_;
  const Deadline deadline_;
};

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options, rendezvous::Store& store)
    : options_(std::move(options)), store_(store) {}

CheckpointWriter::~CheckpointWriter() {
  if (thread_.joinable()) thread_.join();
}

void CheckpointWriter::save(CheckpointPart part) {
  finish();
  saving_step_ = part.metadata.step;
  // All ranks save in the same order, so the count names the save.
  const std::string keys = fmt::format("checkpoint/{}/", num_saves_++);
  thread_ = std::thread([this, keys, part = std::move(part)] {
    try {
      Save(options_, store_, keys, part).run();
    } catch (...) {
      error_ = std::current_exception();
    }
  });
  if (!options_.async) finish();
}

void CheckpointWriter::finish() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (const std::exception_ptr error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
  last_saved_step_ = saving_step_;
}

}  // namespace dslaunch::runtime
