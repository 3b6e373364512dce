#include "bench_report.hpp"

#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"

namespace dslaunch::launcher {
namespace {

using file_io::MeasuredSetting;
using file_io::Rates;
using file_io::Setting;
using Json = nlohmann::ordered_json;

Json aio(const Setting& setting) {
  return {{"block_size", setting.block_size},
          {"queue_depth", setting.queue_depth},
          {"intra_op_parallelism", setting.num_threads}};
}

Json json_of(const Rates& rates) {
  return {{"read_bytes_per_second", rates.read}, {"write_bytes_per_second", rates.write}};
}

Json json_of(const MeasuredSetting& measured) {
  Json row = aio(measured.setting);
  row.update(json_of(measured.rates));
  return row;
}

const char* backend(const BenchIoReport& report) {
  return report.uses_uring ? "io_uring" : "threads";
}

std::string document(const BenchIoReport& report) {
  Json sweep = Json::array();
  for (const auto& each : report.sweep) sweep.push_back(json_of(each));
  const Json json{{"directory", report.directory},
                  {"file_bytes", report.file_bytes},
                  {"backend", backend(report)},
                  {"direct", report.uses_direct},
                  {"sweep", std::move(sweep)},
                  {"best", json_of(report.best)},
                  {"aio", aio(report.best.setting)},
                  {"fio", report.fio ? json_of(*report.fio) : Json(nullptr)},
                  {"num_cores", report.num_cores},
                  {"memory_copy_bytes_per_second", report.copy_rate},
                  {"notes", report.notes}};
  return dump_json(json, 2) + "\n";
}

// In 10^9 bytes, as disks are sold.
std::string gigabytes(double rate) {
  return fmt::format("{:.2f}", rate / 1e9);
}

std::string rates_line(const char* name, const Rates& rates) {
  return fmt::format("{:<20} {:>9}  {:>10}", name, gigabytes(rates.read), gigabytes(rates.write));
}

std::string fio_line(const BenchIoReport& report) {
  if (!report.fio) return fmt::format("fio: {}\n", report.no_fio);
  const Rates& own = report.best.rates;
  return fmt::format("{}   best / fio: {:.2f}, {:.2f}\n", rates_line("fio, same setting", *report.fio),
                     own.read / report.fio->read, own.write / report.fio->write);
}

}  // namespace

std::string describe(const BenchIoReport& report, bool json) {
  if (json) return document(report);
  std::string text = fmt::format("{}: {} in one file, {}, {}\n", report.directory, quantity(report.file_bytes, "B"),
                                 backend(report), report.uses_direct ? "O_DIRECT" : "through the page cache");
  for (const auto& note : report.notes) text += note + "\n";
  text += "\nblock_size  queue_depth  intra_op_parallelism   read GB/s  write GB/s\n";
  for (const auto& [setting, rates] : report.sweep) {
    text += fmt::format("{:>10}  {:>11}  {:>20}   {:>9}  {:>10}\n", setting.block_size, setting.queue_depth,
                        setting.num_threads, gigabytes(rates.read), gigabytes(rates.write));
  }
  text +=
      "\n                     read GB/s  write GB/s\n" + rates_line("best, measured again", report.best.rates) + "\n";
  text += fio_line(report);
  text += fmt::format("memory copy: {} GB/s on {} core{}\n", gigabytes(report.copy_rate), report.num_cores,
                      report.num_cores == 1 ? "" : "s");
  return text + fmt::format("\n\"aio\": {}\n", dump_json(aio(report.best.setting)));
}

}  // namespace dslaunch::launcher
