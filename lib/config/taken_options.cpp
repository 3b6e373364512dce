// What somebody who brings a config of another tool is told to type.
#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "config/key_table.hpp"
#include "config/load.hpp"
#include "config/other_tools.hpp"

namespace dslaunch::config {
namespace {

std::string text_of(const Value& value) {
  if (value.is_bool()) return value.boolean ? "true" : "false";
  if (value.is_int()) return std::to_string(value.integer);
  if (value.is_float()) return fmt::format("{}", value.number);
  return value.text;
}

bool is_scalar(const Value& value) {
  return value.is_bool() || value.is_int() || value.is_float() || (value.is_string() && !value.text.empty());
}

// Of the file, and of accelerate's section for DeepSpeed.
std::vector<const Member*> scalars_of(const Value& root) {
  std::vector<const Member*> out;
  for (const Member& member : root.members) {
    if (is_scalar(member.value)) out.push_back(&member);
    if (member.key != "deepspeed_config") continue;
    for (const Member& inner : member.value.members) {
      if (is_scalar(inner.value)) out.push_back(&inner);
    }
  }
  return out;
}

std::optional<Override> precision_of(const Value& value) {
  const std::string text = text_of(value);
  if (text.find("bf16") != text.npos || text == "bfloat16") return Override{"bf16.enabled", "true"};
  if (text.find("16") != text.npos) return Override{"fp16.enabled", "true"};
  return std::nullopt;
}

// A path of another tool's data says nothing of files that a run here reads.
bool is_of_data(std::string_view key) {
  return key == "data.train" || key == "data.eval";
}

std::optional<Override> setting_for(const Member& member) {
  for (const char* name : {"mixed_precision", "precision", "dtype", "torch_dtype"}) {
    if (member.key == name) return precision_of(member.value);
  }
  std::string_view key = member.key;
  const KeySpec* own = find_key(key);
  const bool is_own = own != nullptr && own->status == Status::kSupported && own->kind != Kind::kSection &&
                      own->kind != Kind::kNamed;  // "bf16: true", a section here
  if (!is_own) {
    const OtherName* other = find_other_name("", key);
    if (other == nullptr || !other->remark.empty()) return std::nullopt;
    key = other->key;
  }
  if (key.empty() || is_of_data(key)) return std::nullopt;
  const size_t equals = key.find('=');
  if (equals == key.npos) return Override{std::string(key), text_of(member.value)};
  // A switch there, a value here.
  if (!member.value.is_bool() && !member.value.is_text("auto")) return std::nullopt;
  if (member.value.is_bool() && !member.value.boolean) return std::nullopt;
  const std::string_view on = key.substr(equals + 1);
  return Override{std::string(key.substr(0, equals)), member.value.is_bool() ? std::string(on) : "auto"};
}

int64_t number_of_hosts(const Value& root) {
  const Value* hosts = root.find("num_machines");
  return hosts != nullptr && hosts->is_int() && hosts->integer > 0 ? hosts->integer : 1;
}

// "--run_dir out", and of ranks those of each host. --config is named by the answer itself, and the rank of one node is
// not for the command that starts all.
std::optional<std::string> option_value(const OtherName& other, const Value& value, int64_t num_hosts) {
  if (other.option == "--config" || other.option == "--node_rank") return std::nullopt;
  if (value.is_string()) return value.text;
  if (!value.is_int() || value.integer < 1) return std::nullopt;
  if (other.option == "--num_nodes") return num_hosts > 1 ? std::optional(std::to_string(num_hosts)) : std::nullopt;
  if (other.option != "--num_gpus") return std::to_string(value.integer);
  return value.integer % num_hosts == 0 ? std::optional(std::to_string(value.integer / num_hosts)) : std::nullopt;
}

}  // namespace

TakenOptions take_options(const Value& root) {
  TakenOptions out;
  std::vector<Override> overrides;
  std::vector<std::string> settings;
  for (const Member* member : scalars_of(root)) {
    const OtherName* other = find_other_name("", member->key);
    if (other != nullptr && other->key.empty() && !other->option.empty()) {
      const auto value = option_value(*other, member->value, number_of_hosts(root));
      if (!value) continue;
      out.words.insert(out.words.end(), {std::string(other->option), *value});
      out.keys.push_back(member->key);
      continue;
    }
    const auto setting = setting_for(*member);
    if (!setting) continue;
    overrides.push_back(*setting);
    if (!load_text("{}", "", Format::kHjson, overrides).ok()) {
      overrides.pop_back();
      continue;
    }
    settings.insert(settings.end(), {"--set", fmt::format("{}={}", setting->key, setting->value)});
    out.keys.push_back(member->key);
  }
  out.words.insert(out.words.end(), settings.begin(), settings.end());
  return out;
}

}  // namespace dslaunch::config
