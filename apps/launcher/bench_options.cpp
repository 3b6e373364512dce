#include "bench_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"

namespace dslaunch::launcher {
namespace {

constexpr int kMaxSeconds = 3600;
constexpr int64_t kMinParameters = 1'000'000;  // fewer fit into the caches of some processors

constexpr const char* kUsage = "usage: dslaunch bench io [--dir DIR] [options] | dslaunch bench adam [options]";
constexpr const char* kHelp =
    "  dslaunch bench io --dir /local_nvme\n"
    "  dslaunch bench io --dir /local_nvme --seconds 60 --json\n"
    "How fast files in DIR are read and written at several block sizes, queue depths and threads: past the page\n"
    "cache, as what a run keeps in files (device nvme). At the end the best setting as the block 'aio' of a config,\n"
    "beside fio's rates for it, where fio is installed, and the rate at which these cores copy memory. The file has "
    "no\n"
    "name, and its space is free again when the command ends, however it ends.\n"
    "  dslaunch bench adam\n"
    "  dslaunch bench adam --params 1e8 --json\n"
    "How fast the CPU updates optimizer state that is offloaded, by number of threads and by optimizer, beside moving\n"
    "the same bytes without computing anything; what binds it, and how many threads are enough.\n";

BenchSubject subject_of(const std::string& name) {
  if (name.empty()) {
    usage_error(
        "bench what? dslaunch bench io [--dir DIR]: reads and writes of files; dslaunch bench adam: updates on "
        "the CPU");
  }
  if (name == "comm") usage_error("bench comm is not supported yet");
  if (name == "io") return BenchSubject::kIo;
  if (name == "adam") return BenchSubject::kAdam;
  usage_error(fmt::format("bench {}: expected io or adam", name));
}

int64_t parameters_of(double given) {
  constexpr double kMost = 1e12;
  if (!(given >= static_cast<double>(kMinParameters)) || given > kMost) {
    usage_error(fmt::format("--params {}: expected 1e6 to 1e12", given));
  }
  return static_cast<int64_t>(given);
}

}  // namespace

std::optional<BenchOptions> read_bench_options(const Arguments& arguments) {
  BenchOptions options;
  std::string subject;
  auto num_parameters = static_cast<double>(options.num_parameters);
  CommandLine line("dslaunch bench", kUsage, kHelp);
  line.app().add_option("SUBJECT", subject, "io or adam");
  const auto* directory =
      line.value("--dir", options.directory, "io: the directory whose storage is measured (.)", "DIR");
  const auto* parameters =
      line.value("--params", num_parameters, "adam: parameters to update, 28 bytes of memory each (33554432)", "N");
  line.value("--seconds", options.seconds, "how long the measurements take, about (20)", "N");
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'bench'");
  options.subject = subject_of(subject);
  const bool is_io = options.subject == BenchSubject::kIo;
  if (!is_io && directory->count() > 0) usage_error("--dir belongs to 'dslaunch bench io', not to 'bench adam'");
  if (is_io && parameters->count() > 0) usage_error("--params belongs to 'dslaunch bench adam', not to 'bench io'");
  options.num_parameters = parameters_of(num_parameters);
  if (options.seconds < 1 || options.seconds > kMaxSeconds) {
    usage_error(fmt::format("--seconds {}: expected 1 to {}", options.seconds, kMaxSeconds));
  }
  return options;
}

}  // namespace dslaunch::launcher
