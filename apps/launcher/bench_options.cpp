#include "bench_options.hpp"

#include "base/format.hpp"
#include "command_line.hpp"

namespace dslaunch::launcher {
namespace {

constexpr int kMaxSeconds = 3600;

constexpr const char* kUsage = "usage: dslaunch bench io [--dir DIR] [options]";
constexpr const char* kHelp =
    "  dslaunch bench io --dir /local_nvme\n"
    "  dslaunch bench io --dir /local_nvme --seconds 60 --json\n"
    "How fast files in DIR are read and written at several block sizes, queue depths and threads: past the page\n"
    "cache, as what a run keeps in files (device nvme). At the end the best setting as the block 'aio' of a config,\n"
    "beside fio's rates for it, where fio is installed, and the rate at which these cores copy memory. The file has "
    "no\n"
    "name, and its space is free again when the command ends, however it ends.\n";

void check_subject(const std::string& subject) {
  if (subject.empty()) usage_error("bench what? dslaunch bench io [--dir DIR]: reads and writes of files");
  if (subject == "adam" || subject == "comm") usage_error(fmt::format("bench {} is not supported yet", subject));
  if (subject != "io") usage_error(fmt::format("bench {}: expected io", subject));
}

}  // namespace

std::optional<BenchIoOptions> read_bench_options(const Arguments& arguments) {
  BenchIoOptions options;
  std::string subject;
  CommandLine line("dslaunch bench", kUsage, kHelp);
  line.app().add_option("SUBJECT", subject, "io");
  line.value("--dir", options.directory, "the directory whose storage is measured (.)", "DIR");
  line.value("--seconds", options.seconds, "how long the measurements take, about (20)", "N");
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("'--' belongs to 'dslaunch exec', not to 'bench'");
  check_subject(subject);
  if (options.seconds < 1 || options.seconds > kMaxSeconds) {
    usage_error(fmt::format("--seconds {}: expected 1 to {}", options.seconds, kMaxSeconds));
  }
  return options;
}

}  // namespace dslaunch::launcher
