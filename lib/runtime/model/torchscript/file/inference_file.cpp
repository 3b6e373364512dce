#include "runtime/model/torchscript/file/inference_file.hpp"

#include <exception>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"

namespace dslaunch::runtime::model::file {
namespace {

struct Preparation {
  std::string_view operators;  // as written in an archive's code
  const char* words;
};
constexpr Preparation kPreparations[] = {
    {"ops.prepacked.",
     "was made by torch.utils.mobile_optimizer.optimize_for_mobile: its weights are packed for XNNPACK"},
    {"ops.prim.mkldnn_",
     "was made by torch.jit.optimize_for_inference: its layers are operators of oneDNN with constant weights"},
    {"ops.mkldnn.", "was made for inference: its layers are operators of oneDNN with packed weights"},
    {"ops.mkldnn_prepacked.", "was made for inference: its layers are operators of oneDNN with packed weights"},
    {"ops.quantized.", "is quantized: its weights are packed integers"},
    {"ops.sparse.qlinear", "is quantized: its weights are packed integers"},
};

bool is_code(const std::string& record) {
  constexpr std::string_view kEnd = ".py";
  return record.rfind("code/", 0) == 0 && record.size() > kEnd.size() &&
         record.compare(record.size() - kEnd.size(), kEnd.size(), kEnd) == 0;
}

}  // namespace

std::string describe_inference_file(caffe2::serialize::PyTorchStreamReader& reader) try {
  for (const auto& record : reader.getAllRecords()) {
    if (!is_code(record)) continue;
    const auto [bytes, size] = reader.getRecord(record);
    const std::string_view code(static_cast<const char*>(bytes.get()), size);
    for (const auto& preparation : kPreparations) {
      if (code.find(preparation.operators) == std::string_view::npos) continue;
      return fmt::format(
          "{}, which have no gradient. Save the original module, with torch.jit.script(module).save(PATH)",
          preparation.words);
    }
  }
  return {};
} catch (const std::exception&) {
  return {};  // a damaged file does not show how it was made
}

// LibTorch may accept a damaged file once and refuse it the next time: it reads past the end of a short version record.
void refuse_inference_file(const std::string& path) {
  std::string what;
  try {
    caffe2::serialize::PyTorchStreamReader reader(path);
    what = describe_inference_file(reader);
  } catch (const std::exception& error) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("cannot read model '{}': it is damaged: {}", path, cause_of(error)));
  }
  if (!what.empty())
    throw UserError(ExitCode::kBadInput, fmt::format("model '{}' cannot be trained: it {}", path, what));
}

}  // namespace dslaunch::runtime::model::file
