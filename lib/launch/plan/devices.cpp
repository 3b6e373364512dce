#include "launch/plan/devices.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"

namespace dslaunch::launch {
namespace {

#ifdef DSL_HAVE_CUDA
constexpr bool kHaveCuda = true;
#else
constexpr bool kHaveCuda = false;
#endif

// The device that one entry names: an index, or a UUID, which may be abbreviated to an unambiguous prefix.
std::optional<size_t> device_of_entry(const std::vector<Gpu>& gpus, std::string_view entry) {
  if (const auto index = parse_int<size_t>(entry)) return *index < gpus.size() ? index : std::nullopt;
  if (!entry.starts_with("GPU-")) return std::nullopt;
  std::optional<size_t> found;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (!gpus[i].uuid.starts_with(entry)) continue;
    if (found) return std::nullopt;
    found = i;
  }
  return found;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "", "-1" and "NoDevFiles" select no GPU, whatever GPUs there are.
bool wants_none(const std::optional<std::string>& variable) {
  if (!variable) return false;
  const std::string_view first = trimmed(split(*variable, ',').front());
  return !parse_int<size_t>(first) && !first.starts_with("GPU-") && !first.starts_with("MIG-");
}

}  // namespace

std::vector<std::string> visible_devices(const std::vector<Gpu>& gpus, const std::optional<std::string>& variable) {
  std::vector<std::string> visible;
  if (!variable) {
    for (size_t i = 0; i < gpus.size(); ++i) visible.push_back(std::to_string(i));
    return visible;
  }
  std::vector<std::string> seen;
  for (const auto& part : split(*variable, ',')) {
    const std::string_view entry = trimmed(part);
    bool is_mig = entry.starts_with("MIG-") && !gpus.empty();
    auto device = device_of_entry(gpus, entry);
    if (!device && !is_mig) break;
    std::string identity = is_mig ? std::string(entry) : gpus[*device].uuid;
    if (std::find(seen.begin(), seen.end(), identity) != seen.end()) return {};
    seen.push_back(identity);
    visible.emplace_back(entry);
  }
  return visible;
}

DeviceSituation look_for_devices() {
  const GpuSurvey survey = survey_gpus();
  std::optional<std::string> variable;
  if (const char* value = std::getenv("CUDA_VISIBLE_DEVICES")) variable = value;
  return {survey.gpus.size(), visible_devices(survey.gpus, variable), wants_none(variable) ? "" : survey.error};
}

std::string choose_device(DeviceChoice choice, const DeviceSituation& situation, DeviceUser user) {
  if (choice == DeviceChoice::kCpu) return "cpu";
  if (situation.none_answers()) {
    throw UserError(ExitCode::kUnavailable, fmt::format("{}; use --device cpu to run without GPUs", situation.error));
  }
  if (situation.visible.empty()) {
    if (choice == DeviceChoice::kAuto) return "cpu";
    throw UserError(
        ExitCode::kUnavailable,
        situation.num_present == 0
            ? std::string("--device cuda: no GPU found (NVML finds none, or there is no driver)")
            : fmt::format("--device cuda: this host has {} GPU(s) but CUDA_VISIBLE_DEVICES='{}' leaves none",
                          situation.num_present, std::getenv("CUDA_VISIBLE_DEVICES")));
  }
  if (user == DeviceUser::kOurWorker && !kHaveCuda) {
    throw UserError(
        ExitCode::kUnavailable,
        fmt::format("this host has {} GPU(s), but this dslaunch was built without CUDA; build it where nvcc "
                    "is found (a CUDA 13 toolkit, or ./scripts/setup --cuda), or use --device cpu",
                    situation.num_present));
  }
  return "cuda";
}

}  // namespace dslaunch::launch
