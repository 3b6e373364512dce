// `dslaunch bench io`: the settings of "aio" that are the fastest on this machine. `bench adam` is in adam_bench.cpp;
// `bench step` runs in dsworker.
#include <sched.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "adam_bench.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/quantity.hpp"
#include "bench_options.hpp"
#include "bench_report.hpp"
#include "commands.hpp"
#include "file_io/storage.hpp"
#include "file_io/sweep.hpp"
#include "fio_rate.hpp"
#include "launch/plan/input_files.hpp"
#include "launch/plan/model_file.hpp"

namespace dslaunch::launcher {
namespace {

using file_io::RateMeter;
using file_io::Rates;
using file_io::Setting;
using file_io::StripedFile;
using std::chrono::milliseconds;

constexpr int64_t kMaxFileBytes = int64_t{2} << 30, kMinFileBytes = 64 << 20, kMaxBytesInFlight = 64 << 20;
constexpr int kRounds = 2;  // of the best setting

int count_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

void check_directory(const std::string& directory) {
  struct stat status {};
  const std::string name = "--dir " + directory;
  if (::stat(directory.c_str(), &status) != 0) {
    throw UserError(ExitCode::kNoInput, name + ": " + describe_errno(errno));
  }
  if (!S_ISDIR(status.st_mode)) throw UserError(ExitCode::kNoInput, name + ": it is not a directory");
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    const ExitCode code = errno == EACCES ? ExitCode::kPermission : ExitCode::kCannotCreate;
    throw UserError(code, name + " cannot be written to: " + describe_errno(errno));
  }
}

// Half of what is free, since others write there too.
int64_t choose_file_bytes(const std::string& directory) {
  struct statvfs space {};
  if (::statvfs(directory.c_str(), &space) != 0) throw SystemError("statvfs", directory);
  const auto available = static_cast<int64_t>(space.f_bavail * space.f_frsize);
  if (available < 2 * kMinFileBytes) {
    throw UserError(ExitCode::kIoError,
                    fmt::format("--dir {}: too little space: {} are free, and a measurement needs {}; name another "
                                "directory, or make room",
                                directory, quantity(available, "B"), quantity(2 * kMinFileBytes, "B")));
  }
  return std::min(available / 2 / kMinFileBytes * kMinFileBytes, kMaxFileBytes);
}

// How the seconds are spent.
struct Schedule {
  explicit Schedule(int seconds, size_t num_settings)
      : fill(seconds * 100),
        each(std::max<int64_t>(int64_t{450} * seconds / (2 * static_cast<int64_t>(num_settings)), 20)),
        last(std::max(250, seconds * 50)),
        copy(seconds * 25) {}
  milliseconds fill, each;
  milliseconds last;  // of one measurement of the best setting; fio's is a whole number of seconds, at least 1
  milliseconds copy;
};

class IoBench {
 public:
  explicit IoBench(const BenchOptions& options)
      : settings_(file_io::plan_sweep(count_cores(), kMaxBytesInFlight)),
        schedule_(options.seconds, settings_.size()),
        file_({.directories = {options.directory}, .bytes = choose_file_bytes(options.directory), .note = note_once()}),
        meter_(file_, kMaxBytesInFlight, file_io::Backend::kBest, note_once()) {
    report_.directory = options.directory;
    if (auto caution = describe_caution(file_io::find_storage(options.directory), options.directory)) {
      report_.notes.push_back(*caution);
    }
    report_.uses_uring = file_io::make_uring_queue(1, {}, note_once()).ok();
  }

  BenchIoReport run() {
    report_.file_bytes = meter_.fill(schedule_.fill, kMinFileBytes);
    for (const Setting& setting : settings_) {
      report_.sweep.push_back({setting, measure(setting, schedule_.each)});
    }
    report_.best = choose_best(report_.sweep);
    report_.best.rates = {};
    report_.uses_direct = file_.uses_direct(0);
    report_.fio = Rates();
    for (int round = 0; round < kRounds; ++round) {
      compare_with_fio(false, &Rates::read);
      compare_with_fio(true, &Rates::write);
    }
    report_.num_cores = count_cores();
    report_.copy_rate = file_io::measure_copy_rate(report_.num_cores, schedule_.copy);
    return report_;
  }

 private:
  file_io::Note note_once() {
    return [this](const std::string& line) {
      auto& notes = report_.notes;
      if (std::find(notes.begin(), notes.end(), line) == notes.end()) notes.push_back(line);
    };
  }

  Rates measure(const Setting& setting, milliseconds duration) {
    Rates rates;
    rates.read = meter_.measure(setting, false, duration);
    rates.write = meter_.measure(setting, true, duration);
    return rates;
  }

  // One after the other, since what else uses the disk changes from second to second; of both the best round counts.
  void compare_with_fio(bool is_write, double Rates::*rate) {
    const Setting& setting = report_.best.setting;
    double& own = report_.best.rates.*rate;
    own = std::max(own, meter_.measure(setting, is_write, schedule_.last));
    if (!report_.fio) return;
    const auto measured =
        measure_with_fio({.path = file_.path(0),
                          .bytes = report_.file_bytes,
                          .direct = report_.uses_direct,
                          .uses_uring = report_.uses_uring,
                          .is_write = is_write,
                          .setting = setting,
                          .seconds = static_cast<int>(std::max<int64_t>(1, schedule_.last.count() / 1000))});
    if (measured.ok()) {
      (*report_.fio).*rate = std::max((*report_.fio).*rate, *measured);
    } else {
      report_.fio.reset();
      report_.no_fio = measured.error();
    }
  }

  BenchIoReport report_;
  const std::vector<Setting> settings_;
  const Schedule schedule_;
  StripedFile file_;
  RateMeter meter_;
};

std::string bench_io(const BenchOptions& options) {
  check_directory(options.directory);
  IoBench bench(options);
  log::info("measuring reads and writes in {} for about {} s", options.directory, options.seconds);
  return describe(bench.run(), options.json);
}

std::string bench_adam(const BenchOptions& options) {
  const int num_cores = count_cores();
  log::info("measuring updates of {} parameters on {} cores for about {} s", with_separators(options.num_parameters),
            num_cores, options.seconds);
  return describe(measure_updates(options.num_parameters, num_cores, options.seconds), options.json);
}

}  // namespace

int bench_command(const Arguments& arguments) {
  const auto options = read_bench_options(arguments);
  if (!options) return 0;
  if (options->subject == BenchSubject::kStep) {
    launch::check_model_file(options->model);
    launch::check_model_archive(options->model);
    return run_worker(options->worker_words);
  }
  const bool is_io = options->subject == BenchSubject::kIo;
  std::fputs((is_io ? bench_io(*options) : bench_adam(*options)).c_str(), stdout);
  return 0;
}

}  // namespace dslaunch::launcher
