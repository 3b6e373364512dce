#include "runtime/engine/bench/step_report.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/byte_size.hpp"
#include "base/dump_json.hpp"
#include "base/format.hpp"
#include "base/quantity.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/telemetry/device_work.hpp"

namespace dslaunch::runtime::engine::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNumKernels = 20, kMinWidth = 80;

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

const char* name_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "bf16" : dtype == at::kHalf ? "fp16" : "fp32";
}

std::string flops_text(int64_t macs) {
  return quantity(2 * macs, "FLOP");
}

std::string rate_text(double flops_per_second) {
  return quantity(static_cast<int64_t>(flops_per_second), "FLOP/s");
}

std::string bytes_text(int64_t bytes) {
  return bytes >= int64_t{1} << 30 ? format_bytes(bytes)
                                   : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

double share_of_gemm_rate(const StepReport& report, const StepMeasurement& measured) {
  return report.gemm_rate > 0 ? measured.flops_per_second() / report.gemm_rate : 0;
}

// "aten::add" as people write it.
std::string short_name(const std::string& name) {
  const size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

std::string cut_to(std::string text, size_t width) {
  if (text.size() <= width) return text;
  return text.substr(0, width - 2) + "..";
}

// Words behind an indented label, on as many lines as they need.
std::string paragraph(const std::string& label, const std::string& words, size_t width) {
  constexpr size_t kIndent = 12;
  std::string out, line = fmt::format("{:<{}}", label, kIndent);
  const size_t empty = kIndent;
  size_t begin = 0;
  while (begin < words.size()) {
    size_t end = words.find(' ', begin);
    if (end == std::string::npos) end = words.size();
    const std::string word = words.substr(begin, end - begin);
    if (line.size() > empty && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line = std::string(empty, ' ');
    }
    line += (line.size() > empty ? " " : "") + word;
    begin = end + 1;
  }
  return out + line + "\n";
}

std::string head_text(const StepReport& report) {
  std::string text = fmt::format("{}: {} parameters\n", report.model, with_separators(report.own.num_parameters));
  return text + fmt::format("{}, ZeRO {}, micro batch {} x {}, on {}\n", name_of(report.compute_dtype),
                            report.zero_stage, report.micro_batch, counted(report.accumulation, "accumulation step"),
                            report.device.str());
}

// What steps wait for their batches.
std::string input_text(const StepMeasurement& measured) {
  const double held = measured.median_held_ms(), input = measured.median_ms() - held;
  return fmt::format("{:.2f} ms of it ({:.1f} %): {:.2f} ms with batches that are held on the device", input,
                     100 * input / measured.median_ms(), held);
}

std::string throughput_text(const StepMeasurement& measured) {
  std::string text;
  if (measured.tokens_per_step > 0) text += format_rate(measured.tokens_per_second()) + " tokens/s, ";
  return text + format_rate(measured.samples_per_second()) + " samples/s";
}

std::string memory_text(const StepMeasurement& measured) {
  const StepMemory& memory = measured.memory;
  if (memory.reserved == 0) {
    return fmt::format("peak {} in tensors, {} of the whole process", bytes_text(memory.allocated),
                       bytes_text(memory.process));
  }
  return fmt::format("peak {} allocated, {} reserved: {:.1f} % fragmentation", bytes_text(memory.allocated),
                     bytes_text(memory.reserved), 100 * measured.fragmentation());
}

std::string figures_text(const StepReport& report, size_t width) {
  const StepMeasurement& own = report.own;
  std::string text =
      paragraph("step",
                fmt::format("{:.2f} ms, the median of {} after {} of warm-up ({:.2f} to {:.2f})", own.median_ms(),
                            own.step_ms.size(), own.num_warmup, own.min_ms(), own.max_ms()),
                width);
  text += paragraph("input", input_text(own), width);
  text += paragraph("throughput", throughput_text(own), width);
  std::string parts =
      fmt::format("{} forward, {} backward", flops_text(own.macs.forward), flops_text(own.macs.backward));
  if (own.macs.update > 0) parts += fmt::format(", {} update", flops_text(own.macs.update));
  text += paragraph("arithmetic", fmt::format("{} ({})", rate_text(own.flops_per_second()), parts), width);
  text += paragraph(
      "",
      fmt::format("{:.1f} % of what large {} matrix products reach here: {}", 100 * share_of_gemm_rate(report, own),
                  name_of(report.gemm_dtype), rate_text(report.gemm_rate)),
      width);
  text += paragraph("memory", memory_text(own), width);
  text += paragraph("first step", fmt::format("ended {:.2f} s after loading began", own.first_step_seconds), width);
  text += paragraph(
      "captured", own.is_captured ? "yes: steps are replayed as one CUDA graph" : "no: " + own.why_not_captured, width);
  for (const auto& note : own.notes) text += paragraph("note", note, width);
  return text;
}

// Against all of the work, so that shares sum up to 100 %.
std::string profile_text(const StepReport& report, size_t width) {
  const StepProfile& profile = report.own.profile;
  const bool is_cpu = report.device.is_cpu();
  const char* noun = is_cpu ? "operator" : "kernel";
  if (profile.num_steps == 0) return {};
  if (profile.work.empty()) {
    return is_cpu ? "no operators were recorded\n"
                  : "no kernels were recorded: the driver does not let CUPTI profile here\n";
  }
  const auto steps = static_cast<double>(profile.num_steps);
  double total = 0;
  for (const auto& work : profile.work) total += work.milliseconds;
  std::string text =
      fmt::format("{}\n{} of {:.2f} ms {} profiled; {} {:.2f} ms of it\n        ms   share   calls  {}\n",
                  is_cpu ? "operators of a step, without those that they call" : "kernels and copies of a step",
                  counted(profile.num_steps, "step"), profile.wall_ms / steps, profile.num_steps == 1 ? "was" : "were",
                  is_cpu ? "operators take" : "the device is busy", profile.busy_ms / steps, noun);
  const auto row = [&](double ms, int64_t calls, const std::string& name) {
    const int decimals = calls % profile.num_steps == 0 ? 0 : 1;
    text += fmt::format("{:>10.3f}  {:>4.1f} %  {:>6}  {}\n", ms / steps, total > 0 ? 100 * ms / total : 0,
                        fmt::format("{:.{}f}", static_cast<double>(calls) / steps, decimals), cut_to(name, width - 28));
  };
  const size_t shown = std::min(kNumKernels, profile.work.size());
  for (size_t i = 0; i < shown; ++i) {
    const auto& work = profile.work[i];
    row(work.milliseconds, work.num_calls, is_cpu ? work.name : short_kernel_name(work.name));
  }
  if (shown == profile.work.size()) return text;
  WorkTime others;
  for (size_t i = shown; i < profile.work.size(); ++i) {
    others.milliseconds += profile.work[i].milliseconds;
    others.num_calls += profile.work[i].num_calls;
  }
  row(others.milliseconds, others.num_calls,
      counted(static_cast<int64_t>(profile.work.size() - shown), "other " + std::string(noun)));
  return text;
}

// Regions with the same operators, where they are the first time, and how often there are such.
struct RegionKind {
  std::string first_module;
  std::vector<std::string> operators;
  int64_t count = 0;
};

std::vector<RegionKind> kinds_of(const std::vector<model::GraphReport::Region>& regions) {
  std::vector<RegionKind> out;
  for (const auto& region : regions) {
    auto kind =
        std::find_if(out.begin(), out.end(), [&](const auto& each) { return each.operators == region.operators; });
    if (kind == out.end()) kind = out.insert(out.end(), {region.module, region.operators});
    kind->count += 1;
  }
  return out;
}

// "mul x3, add, tanh": in the order of their first use.
std::string list_of(const std::vector<std::string>& operators) {
  std::vector<std::pair<std::string, int>> counts;
  for (const auto& name : operators) {
    auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& each) { return each.first == short_name(name); });
    if (found == counts.end()) found = counts.insert(found, {short_name(name), 0});
    found->second += 1;
  }
  std::string out;
  for (const auto& [name, count] : counts) {
    out += (out.empty() ? "" : ", ") + name + (count > 1 ? fmt::format(" x{}", count) : "");
  }
  return out;
}

std::string regions_text(const StepMeasurement& own, size_t width) {
  if (!own.graphs.why_no_regions.empty()) return "fused regions: none; " + own.graphs.why_no_regions + "\n";
  size_t num_operators = 0;
  for (const auto& region : own.graphs.regions) num_operators += region.operators.size();
  std::string text =
      fmt::format("fused regions: {} of {} in a forward", counted(std::ssize(own.graphs.regions), "group"),
                  counted(static_cast<int64_t>(num_operators), "operator"));
  if (own.programs.num_groups > 0) {
    text += fmt::format(", {} each way", counted(own.programs.num_regions, "kernel"));
  }
  text += "\n";
  if (own.graphs.regions.empty()) return text;
  text += "  times  first in                  operators\n";
  for (const auto& kind : kinds_of(own.graphs.regions)) {
    const std::string module = kind.first_module.empty() ? "the model itself" : kind.first_module;
    text += fmt::format("  {:>5}  {:<24}  {:>2}: {}\n", kind.count, cut_to(module, 24), kind.operators.size(),
                        cut_to(list_of(kind.operators), width - 39));
  }
  return text;
}

// What is computed otherwise than by a region, and why.
std::string left_text(const StepMeasurement& own, size_t width) {
  std::string rows, others;
  const auto add = [&](int64_t count, const std::string& name, const std::string& reason) {
    rows += fmt::format("  {:>5}  {:<24}  {}\n", count, cut_to(name, 24), cut_to(reason, width - 35));
  };
  for (const auto& [left, count] : own.graphs.left) {
    if (left.reason == model::torchscript::kNoKindOfRegions) {
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", count, short_name(left.name));
    } else {
      add(count, short_name(left.name), left.reason);
    }
  }
  std::map<std::string, int64_t> reasons;
  for (const auto& reason : own.programs.why_not) reasons[reason] += 1;
  for (const auto& [reason, count] : reasons) add(count, "groups", reason);
  std::string text;
  if (!rows.empty())
    text = "not in a region, though of a kind that can be\n  times  operator                  why\n" + rows;
  if (!others.empty()) text += "of kinds that no region contains\n" + paragraph("", others, width);
  return text;
}

std::string replaced_text(const StepReport& report, size_t width) {
  const auto& graphs = report.own.graphs;
  std::string text;
  for (const auto& [name, count] : graphs.replaced) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, short_name(name));
  }
  if (text.empty()) text = "none";
  if (report.device.is_cpu() && text != "none") text += "; on CPUs most of them call PyTorch's operator";
  text = paragraph("replaced", text, width);
  if (graphs.switched_off.empty()) return text;
  return text + paragraph("passes off", fmt::format("{}", fmt::join(graphs.switched_off, ", ")), width);
}

std::string comparison_row(const char* name, const StepReport& report, const StepMeasurement& measured) {
  const bool has_tokens = measured.tokens_per_step > 0;
  return fmt::format("{:<11}{:>9.2f}  {:>17}  {:>9}  {:>7.4g}  {:>6.1f} %  {:>8.3g}\n", name, measured.median_ms(),
                     fmt::format("{:.2f} to {:.2f}", measured.min_ms(), measured.max_ms()),
                     format_rate(has_tokens ? measured.tokens_per_second() : measured.samples_per_second()),
                     measured.flops_per_second() / 1e12, 100 * share_of_gemm_rate(report, measured),
                     static_cast<double>(measured.memory.allocated) / (int64_t{1} << 30));
}

std::string comparison_text(const StepReport& report) {
  const StepMeasurement& torch = *report.torch;
  std::string text =
      "against eager TorchScript: this engine, update and data, without graph passes,\n"
      "fused kernels and capture; PyTorch's operators one by one, in the same precision\n";
  text += fmt::format("{:<11}{:>9}  {:>17}  {:>9}  {:>7}  {:>8}  {:>8}\n", "", "ms", "min to max",
                      torch.tokens_per_step > 0 ? "tokens/s" : "samples/s", "TFLOP/s", "products", "peak GiB");
  text += comparison_row("dslaunch", report, report.own) + comparison_row("TorchScript", report, torch);
  const double ratio = torch.median_ms() / report.own.median_ms();
  return text + fmt::format("dslaunch is {:.2f} times as fast as eager TorchScript, with {:.2f} times its memory\n",
                            ratio,
                            static_cast<double>(report.own.memory.allocated) /
                                static_cast<double>(std::max<int64_t>(1, torch.memory.allocated)));
}

Json macs_json(const StepMacs& macs) {
  return {{"forward", 2 * macs.forward}, {"backward", 2 * macs.backward}, {"update", 2 * macs.update}};
}

Json measurement_json(const StepReport& report, const StepMeasurement& measured) {
  const auto& profile = measured.profile;
  Json work = Json::array();
  for (const auto& each : profile.work) {
    work.push_back({{"name", each.name}, {"calls", each.num_calls}, {"ms", each.milliseconds}});
  }
  Json regions = Json::array(), left = Json::array();
  for (const auto& region : measured.graphs.regions) {
    regions.push_back({{"module", region.module}, {"operators", region.operators}});
  }
  for (const auto& [each, count] : measured.graphs.left) {
    left.push_back({{"operator", each.name}, {"reason", each.reason}, {"count", count}});
  }
  const bool has_tokens = measured.tokens_per_step > 0, is_cpu = report.device.is_cpu();
  return {{"step_ms", measured.step_ms},
          {"held_ms", measured.held_ms},
          {"median_ms", measured.median_ms()},
          {"min_ms", measured.min_ms()},
          {"max_ms", measured.max_ms()},
          {"num_warmup_steps", measured.num_warmup},
          {"first_step_seconds", measured.first_step_seconds},
          {"samples_per_second", measured.samples_per_second()},
          {"tokens_per_second", has_tokens ? Json(measured.tokens_per_second()) : Json(nullptr)},
          {"flops_per_step", macs_json(measured.macs)},
          {"flops_per_second", measured.flops_per_second()},
          {"share_of_matrix_products", share_of_gemm_rate(report, measured)},
          {"peak_allocated_bytes", measured.memory.allocated},
          {"peak_reserved_bytes", is_cpu ? Json(nullptr) : Json(measured.memory.reserved)},
          {"fragmentation", is_cpu ? Json(nullptr) : Json(measured.fragmentation())},
          {"peak_process_bytes", measured.memory.process},
          {"profile",
           {{"of", is_cpu ? "operators" : "kernels"},
            {"num_steps", profile.num_steps},
            {"wall_ms", profile.wall_ms},
            {"busy_ms", profile.busy_ms},
            {"work", std::move(work)}}},
          {"captured", measured.is_captured},
          {"why_not_captured", measured.is_captured ? Json(nullptr) : Json(measured.why_not_captured)},
          {"fused_regions", std::move(regions)},
          {"why_no_fused_regions",
           measured.graphs.why_no_regions.empty() ? Json(nullptr) : Json(measured.graphs.why_no_regions)},
          {"region_kernels", measured.programs.num_regions},
          {"groups_left", measured.programs.why_not},
          {"operators_left", std::move(left)},
          {"replaced_operators", measured.graphs.replaced},
          {"passes_off", measured.graphs.switched_off},
          {"notes", measured.notes}};
}

}  // namespace

std::string report_text(const StepReport& report, size_t width) {
  width = std::max(width, kMinWidth);
  std::string text = head_text(report) + "\n" + figures_text(report, width) + replaced_text(report, width) + "\n";
  text += regions_text(report.own, width) + left_text(report.own, width);
  if (const auto profile = profile_text(report, width); !profile.empty()) text += "\n" + profile;
  if (report.torch) text += "\n" + comparison_text(report);
  return text;
}

std::string report_json(const StepReport& report) {
  Json document{{"model", report.model},
                {"device", report.device.str()},
                {"num_parameters", report.own.num_parameters},
                {"compute_dtype", name_of(report.compute_dtype)},
                {"matrix_product_dtype", name_of(report.gemm_dtype)},
                {"matrix_product_flops_per_second", report.gemm_rate},
                {"zero_stage", report.zero_stage},
                {"micro_batch", report.micro_batch},
                {"accumulation", report.accumulation},
                {"dslaunch", measurement_json(report, report.own)},
                {"eager_torchscript", report.torch ? measurement_json(report, *report.torch) : Json(nullptr)}};
  return dump_json(document, 2) + "\n";
}

}  // namespace dslaunch::runtime::engine::bench
