#include "base/model_archive.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/zip_directory.hpp"

namespace dslaunch {
namespace {

constexpr const char* kExportAdvice =
    "Save the module itself with torch.jit.script(module).save(PATH), or use tools/export.";

}  // namespace

void refuse_model(const std::string& path, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("model '{}' {}. {}", path, what, kExportAdvice));
}

void require_zip(const std::string& path, uint64_t size, std::string_view head, std::string_view tail) {
  if (size == 0) throw UserError(ExitCode::kBadInput, fmt::format("model '{}' is empty (0 bytes)", path));
  if (head.starts_with("PK\x03\x04")) {
    if (has_zip_end(tail)) return;
    refuse_model(
        path, fmt::format("is truncated: a zip archive of {} bytes without a central directory; copy it again", size));
  }
  if (head.starts_with('\x80')) refuse_model(path, "is a pickle of the old torch.save, not TorchScript");
  if (path.ends_with(".py")) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("'{}' is a Python program, not a model. Did you mean: dslaunch exec -- python {}", path, path));
  }
  refuse_model(path, "is not TorchScript (no zip archive)");
}

void require_torchscript(const std::string& path, const std::vector<std::string>& records) {
  bool has_code = false, has_pt2 = false;
  for (const auto& record : records) {
    has_code |= record.starts_with("code/");
    has_pt2 |= record.starts_with("models/") || record.find("exported_program") != std::string::npos ||
               record == "archive_format";
  }
  const auto has = [&](const char* name) { return std::find(records.begin(), records.end(), name) != records.end(); };
  if (has("constants.pkl") && has_code && has("data.pkl")) return;
  if (has_pt2 || path.ends_with(".pt2")) refuse_model(path, "is a torch.export archive (.pt2), not TorchScript");
  if (has("data.pkl")) {
    refuse_model(path,
                 "is not TorchScript: it holds tensors or a state-dict of torch.save but no code, so it cannot be run");
  }
  refuse_model(path, "is a zip archive, but not TorchScript");
}

}  // namespace dslaunch
