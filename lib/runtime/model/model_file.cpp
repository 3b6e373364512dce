#include "runtime/model/model_file.hpp"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/inference_file.hpp"
#include "runtime/model/script_error.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {
namespace {

using caffe2::serialize::PyTorchStreamReader;

using SharedMapping = std::shared_ptr<const MappedFile>;

const char kHowToExport[] = "Save the module itself with torch.jit.script(module).save(PATH), or use tools/export.";

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("model '{}' {}. {}", path, what, kHowToExport));
}

bool has_end_of_zip(const MappedFile& file) {
  const size_t window = std::min<size_t>(file.size(), 66'000);
  const std::string_view tail(reinterpret_cast<const char*>(file.data()) + file.size() - window, window);
  return tail.find("PK\x05\x06") != std::string_view::npos;
}

void require_zip(const std::string& path, const MappedFile& file) {
  if (file.size() == 0) throw UserError(ExitCode::kBadInput, fmt::format("model '{}' is empty (0 bytes)", path));
  if (file.size() >= 4 && std::memcmp(file.data(), "PK\x03\x04", 4) == 0) {
    if (!has_end_of_zip(file)) {
      refuse(path,
             fmt::format("is truncated: a zip archive of {} bytes without its directory; copy it again", file.size()));
    }
    return;
  }
  if (file.data()[0] == 0x80) refuse(path, "is a pickle of the old torch.save, not TorchScript");
  if (ends_with(path, ".py")) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("'{}' is a Python program, not a model. Did you mean: dslaunch exec -- python {}", path, path));
  }
  refuse(path, "is not TorchScript (no zip archive)");
}

void require_torchscript(const std::string& path, PyTorchStreamReader& reader) {
  bool has_code = false, has_pt2 = false;
  for (const auto& record : reader.getAllRecords()) {
    has_code |= record.rfind("code/", 0) == 0;
    has_pt2 |= record.rfind("models/", 0) == 0 || record.find("exported_program") != std::string::npos ||
               record == "archive_format";
  }
  if (reader.hasRecord("constants.pkl") && has_code && reader.hasRecord("data.pkl")) return;
  if (has_pt2 || ends_with(path, ".pt2")) refuse(path, "is a torch.export archive (.pt2), not TorchScript");
  if (reader.hasRecord("data.pkl"))
    refuse(path, "is no TorchScript: it holds tensors or a state-dict of torch.save but no code, so it cannot be run");
  refuse(path, "is a zip archive, but not TorchScript");
}

// Tensors keep the mapping alive through their storage's deleter. Those that the model updates in place (buffers) write
// to it: its pages are copied on write.
at::DataPtr point_into(const SharedMapping& file, size_t offset) {
  auto* keep = new SharedMapping(file);
  return {const_cast<uint8_t*>(file->data()) + offset, keep, [](void* p) { delete static_cast<SharedMapping*>(p); },
          at::kCPU};
}

c10::IValue read_archive(PyTorchStreamReader& reader, const SharedMapping& file, const std::string& name,
                         torch::jit::SourceImporter* importer,
                         const std::shared_ptr<torch::jit::CompilationUnit>& unit) {
  auto [pickle, pickle_size] = reader.getRecord(name + ".pkl");
  const char* bytes = static_cast<const char*>(pickle.get());
  size_t position = 0;
  auto read = [bytes, total = pickle_size, &position](char* out, size_t count) {
    const size_t taken = std::min(count, total - position);
    std::memcpy(out, bytes + position, taken);
    position += taken;
    return taken;
  };
  auto read_record = [&](const std::string& key) { return point_into(file, reader.getRecordOffset(name + "/" + key)); };
  torch::jit::TypeResolver resolve_type;
  torch::jit::ObjLoader load_object;
  if (importer) {
    resolve_type = [importer, unit](const c10::QualifiedName& qualified) {
      return c10::StrongTypePtr(unit, importer->loadType(qualified));
    };
    load_object = [](const at::StrongTypePtr& type, c10::IValue input) {
      return torch::jit::ObjLoaderFunc(type, std::move(input));
    };
  }
  torch::jit::Unpickler unpickler(read, resolve_type, load_object, read_record, at::Device(at::kCPU), false,
                                  torch::jit::Unpickler::defaultTypeParser);
  unpickler.set_version(reader.version());
  return unpickler.parse_ivalue();
}

void require_storages_inside(const std::string& path, const MappedFile& file, const torch::jit::Module& module) {
  auto check = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.is_meta()) {
      refuse(path,
             fmt::format("has no values: '{}' was saved from the device \"meta\" (tools/export --empty makes models "
                         "that the config's \"init\" fills)",
                         name));
    }
    if (tensor.layout() != at::kStrided) {
      refuse(path, fmt::format("holds '{}', which is {}; keep its indices and values as dense buffers, and put them "
                               "together in forward",
                               name, c10::str(tensor.layout())));
    }
    const auto* begin = static_cast<const uint8_t*>(tensor.storage().data());
    if (begin == nullptr) return;
    const bool inside = begin >= file.data() && begin + tensor.storage().nbytes() <= file.data() + file.size();
    if (!inside) refuse(path, fmt::format("is damaged: tensor '{}' reaches past the end of the file", name));
  };
  for (const auto& parameter : module.named_parameters()) check(parameter.name, parameter.value);
  for (const auto& buffer : module.named_buffers()) check(buffer.name, buffer.value);
}

torch::jit::Module read_module(const std::shared_ptr<PyTorchStreamReader>& reader, const SharedMapping& file) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  const auto constant_table = read_archive(*reader, file, "constants", nullptr, unit).toTuple();
  const std::vector<at::IValue> constants(constant_table->elements().begin(), constant_table->elements().end());
  auto find_source = [reader](const std::string& qualified) -> std::shared_ptr<torch::jit::Source> {
    std::string record = "code/" + qualified + ".py";
    std::replace(record.begin(), record.end() - 3, '.', '/');
    if (!reader->hasRecord(record)) return nullptr;
    auto [text, size] = reader->getRecord(record);
    return std::make_shared<torch::jit::Source>(std::string(static_cast<const char*>(text.get()), size), record, 1);
  };
  torch::jit::SourceImporter importer(unit, &constants, find_source, reader->version());
  return torch::jit::Module(read_archive(*reader, file, "data", &importer, unit).toObject());
}

// What could not be read. Some tools write files that this or any LibTorch cannot read back.
[[noreturn]] void explain(const std::string& path, PyTorchStreamReader* reader, const std::string& what) {
  const std::string made = reader ? describe_inference_file(*reader) : "";
  if (made.empty()) refuse(path, "cannot be read as TorchScript: " + parse_error_in(what));
  throw UserError(ExitCode::kBadInput, fmt::format("model '{}' cannot be read here: it {}", path, made));
}

}  // namespace

torch::jit::Module load_mapped_module(const std::string& path) {
  const auto file = MappedFile::open_copy_on_write(path, "model");
  require_zip(path, *file);
  std::shared_ptr<PyTorchStreamReader> reader;
  try {
    reader = std::make_shared<PyTorchStreamReader>(path);
    require_torchscript(path, *reader);
    auto module = read_module(reader, file);
    require_storages_inside(path, *file, module);
    return module;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    explain(path, reader.get(), error.what());
  }
}

}  // namespace dslaunch::runtime
