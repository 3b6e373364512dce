#include "config/inference_keys.hpp"

#include <algorithm>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/small_file.hpp"
#include "config/document.hpp"

namespace dslaunch::config {
namespace {

enum class Answer {
  kDtype,
  kMaxTokens,
  kSection,  // its members are rows
  kNote,     // accepted: `reason`
  kOneOnly,  // a number of ranks: 1, else refused
  kRefused,  // unless it is null, false or empty
};
using enum Answer;

struct Row {
  std::string_view key;
  Answer answer;
  std::string_view reason;
};

constexpr std::string_view kNoSharding = "a model is not cut for inference yet: it runs on one device";
constexpr std::string_view kByGraph =
    "what attention keeps is derived from the model's graph, whatever its classes are";
constexpr std::string_view kBySource = "the weights are those of the checkpoint or of --weights DIR";

constexpr Row kRows[] = {
    {"dtype", kDtype, ""},
    {"max_out_tokens", kMaxTokens, ""},
    {"max_tokens", kMaxTokens, ""},
    {"min_out_tokens", kNote, "the cache grows with the texts: nothing is set aside for them"},
    {"min_tokens", kNote, "the cache grows with the texts: nothing is set aside for them"},
    {"tensor_parallel", kSection, ""},
    {"tp", kSection, ""},
    {"tensor_parallel.tp_size", kOneOnly, kNoSharding},
    {"tensor_parallel.enabled", kNote, "it cuts nothing at size 1"},
    {"tensor_parallel.tp_grain_size", kNote, "it cuts nothing at size 1"},
    {"tensor_parallel.mpu", kRefused, "an object of Python"},
    {"tensor_parallel.tp_group", kRefused, "an object of Python"},
    {"mp_size", kOneOnly, kNoSharding},
    {"training_mp_size", kNote, "checkpoints are read at any number of ranks"},
    {"ep_size", kOneOnly, "experts are not distributed: the model runs on one device"},
    {"replace_with_kernel_inject", kNote, kByGraph},
    {"kernel_inject", kNote, kByGraph},
    {"replace_method", kNote, kByGraph},
    {"injection_policy", kNote, kByGraph},
    {"injection_dict", kNote, kByGraph},
    {"injection_policy_tuple", kNote, kByGraph},
    {"config", kNote, kByGraph},
    {"transposed_mode", kNote, kByGraph},
    {"triangular_masking", kNote, "the mask is that of the model's graph"},
    {"tm", kNote, "the mask is that of the model's graph"},
    {"return_tuple", kNote, "texts are written, nothing is returned"},
    {"enable_cuda_graph", kNote, "passes are not captured yet: they run operator by operator"},
    {"use_triton", kNote, "kernels are those of LibTorch"},
    {"triton_autotune", kNote, "kernels are those of LibTorch"},
    {"keep_module_on_host", kNote, "--nvme_path DIR keeps parameters off the device"},
    {"set_empty_params", kNote, "a model file that was exported with --empty takes its weights from --weights DIR"},
    {"moe", kNote, "experts are part of the model's graph"},
    {"moe_experts", kNote, "experts are part of the model's graph"},
    {"moe_type", kNote, "experts are part of the model's graph"},
    {"checkpoint", kNote, kBySource},
    {"base_dir", kNote, kBySource},
    {"checkpoint_config", kNote, kBySource},
    {"ckpt_config", kNote, kBySource},
    {"save_mp_checkpoint_path", kRefused, "a model is not cut for inference, so there is nothing to save"},
    {"zero", kNote, "--nvme_path DIR reads the parameters of units as they run"},
    {"quant", kRefused, "int8, fp8 and int4 weights are asked for with --weight_dtype"},
    {"mpu", kRefused, "an object of Python"},
    {"ep_group", kRefused, "an object of Python"},
    {"ep_mp_group", kRefused, "an object of Python"},
};

const Row* find_row(const std::string& key) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& one) { return one.key == key; });
  return row == std::end(kRows) ? nullptr : row;
}

std::string dtype_of(const Value& value) {
  std::string name = value.is_string() ? value.text : "";
  if (name.starts_with("torch.")) name.erase(0, std::string_view("torch.").size());
  if (name == "fp32" || name == "float32" || name == "float") return "fp32";
  if (name == "bf16" || name == "bfloat16") return "bf16";
  return name == "fp16" || name == "half" || name == "float16" ? "fp16" : "";
}

bool is_off(const Value& value) {
  return value.is_null() || (value.is_bool() && !value.boolean) || (value.is_object() && value.members.empty()) ||
         (value.is_object() && value.find("enabled") != nullptr && value.find("enabled")->is_bool() &&
          !value.find("enabled")->boolean);
}

class Reader {
 public:
  void read(const Value& object, const std::string& prefix) {
    for (const auto& [key, position, value] : object.members) {
      const std::string path = prefix + key;
      const Row* row = find_row(path);
      if (row == nullptr) {
        add_error(position, path, "is not a key of init_inference" + suggestion(path));
      } else {
        read(*row, position, path, value);
      }
    }
  }

  InferenceConfig config;
  std::vector<std::string> errors;

 private:
  void read(const Row& row, const Position& position, const std::string& path, const Value& value) {
    switch (row.answer) {
      case kDtype:
        config.dtype = dtype_of(value);
        if (config.dtype.empty()) add_error(position, path, "must be fp32, bf16 or fp16, not " + describe(value));
        break;
      case kMaxTokens:
        if (!value.is_int() || value.integer < 1) return add_error(position, path, "must be a number of at least 1");
        config.max_tokens = value.integer;
        break;
      case kSection:
        if (!value.is_object()) return add_error(position, path, "must be an object");
        read(value, "tensor_parallel.");
        break;
      case kOneOnly:
        if (!value.is_int() || value.integer != 1) add_error(position, path, fmt::format("must be 1: {}", row.reason));
        break;
      case kRefused:
        if (!is_off(value)) add_error(position, path, fmt::format("cannot be had: {}", row.reason));
        break;
      case kNote:
        if (!is_off(value)) config.notes.push_back(fmt::format("{} has no effect: {}", path, row.reason));
        break;
    }
  }

  static std::string suggestion(const std::string& path) {
    std::vector<std::string> names;
    for (const Row& row : kRows) names.emplace_back(row.key);
    return did_you_mean(path, names);
  }

  void add_error(const Position& position, const std::string& path, const std::string& what) {
    errors.push_back(fmt::format("line {}: {} {}", position.line, path, what));
  }
};

}  // namespace

InferenceConfig read_inference_config(const std::string& path) {
  const bool is_text = is_config_text(path);
  SmallFile file;
  if (!is_text) file = read_small_file(path, kMaxBytes);
  if (!file.outcome.ok()) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot read the config '{}': {}", path, file.outcome.error()));
  }
  const auto document =
      is_text ? read_document(path, format_of_text(path)) : read_document(file.bytes, format_of(path));
  Reader reader;
  for (const auto& problem : document.problems) {
    reader.errors.push_back(fmt::format("line {}: {}", problem.position.line, problem.message));
  }
  if (document.root) reader.read(*document.root, "");
  if (!reader.errors.empty()) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("config '{}': {}", is_text ? kTextName : path, fmt::join(reader.errors, "\n")));
  }
  return std::move(reader.config);
}

}  // namespace dslaunch::config
