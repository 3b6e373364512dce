#include "runtime/model/torchscript/file/model_file.hpp"

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "base/byte_size.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/model_archive.hpp"
#include "base/zip_directory.hpp"
#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/model/torchscript/file/script_error.hpp"
#include "runtime/state/archive_nesting.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/output_file.hpp"
#include "runtime/state/tensor_extent.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime::model::file {
namespace {

using caffe2::serialize::PyTorchStreamReader;

using SharedMapping = std::shared_ptr<const MappedFile>;

// Tensors keep the mapping alive through their storage's deleter. Tensors that the model updates in place (buffers)
// write to the mapping: its pages are copy-on-write.
at::DataPtr point_into(const SharedMapping& file, size_t offset) {
  auto* keep = new SharedMapping(file);
  return {const_cast<uint8_t*>(file->data()) + offset, keep, [](void* p) { delete static_cast<SharedMapping*>(p); },
          at::kCPU};
}

// The component tensors of a tensor without a plain storage of its own.
std::vector<at::Tensor> parts_of(const at::Tensor& tensor) {
  switch (tensor.layout()) {
    case at::kSparse:
      return {tensor._indices(), tensor._values()};
    case at::kSparseCsr:
    case at::kSparseBsr:
      return {tensor.crow_indices(), tensor.col_indices(), tensor.values()};
    case at::kSparseCsc:
    case at::kSparseBsc:
      return {tensor.ccol_indices(), tensor.row_indices(), tensor.values()};
    default:
      break;
  }
  if (!tensor.is_quantized()) return {};
  const auto scheme = tensor.qscheme();
  if (scheme != at::kPerChannelAffine && scheme != at::kPerChannelAffineFloatQParams) return {};
  return {tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()};
}

// LibTorch's reader trusts a pickle's storages, sizes and strides. Using a tensor that claims more than its record
// holds would read and write out of bounds.
class RecordBounds {
 public:
  RecordBounds(PyTorchStreamReader& reader, SharedMapping file) : reader_(reader), file_(std::move(file)) {}

  at::DataPtr point_at(const std::string& record) {
    const size_t offset = reader_.getRecordOffset(record), size = reader_.getRecordSize(record);
    if (offset > file_->size() || size > file_->size() - offset) {
      refuse_model(file_->path(), fmt::format("is damaged: its record '{}' reaches past the end of the file", record));
    }
    auto& known = sizes_[file_->data() + offset];
    known = std::max(known, size);
    return point_into(file_, offset);
  }

  // Checks all tensors in the value and in the objects that it holds.
  void require_inside(const c10::IValue& value) const {
    std::set<const void*> seen;  // objects that hold themselves are visited once
    value.visit([&](const c10::IValue& part) {
      if (part.isTensor()) {
        require_inside(part.toTensor());
        return true;
      }
      return part.isPtrType() && !seen.insert(part.internalToPointer()).second;
    });
  }

 private:
  void require_inside(const at::Tensor& tensor) const {
    if (!tensor.defined() || tensor.is_meta()) return;
    for (const auto& part : parts_of(tensor)) require_inside(part);
    if (!tensor.has_storage() || tensor.layout() != at::kStrided) return;
    const size_t available = available_to(tensor.storage());
    const auto extent = storage_extent(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    int64_t bytes = 0;
    const bool fits = extent && !__builtin_mul_overflow(*extent, static_cast<int64_t>(tensor.element_size()), &bytes) &&
                      static_cast<size_t>(bytes) <= tensor.storage().nbytes() && tensor.storage().nbytes() <= available;
    if (fits) return;
    refuse_model(file_->path(),
                 fmt::format("is damaged: a tensor of shape [{}] reaches past its record, which has {} bytes",
                             fmt::join(tensor.sizes(), ", "), available));
  }

  // Tensors created by the model's own code during loading are not in any record: LibTorch has allocated them.
  size_t available_to(const c10::Storage& storage) const {
    const auto* data = static_cast<const uint8_t*>(storage.data());
    if (data == nullptr) return 0;
    if (data < file_->data() || data > file_->data() + file_->size()) return storage.nbytes();
    const auto record = sizes_.find(data);
    return record == sizes_.end() ? 0 : record->second;
  }

  PyTorchStreamReader& reader_;
  const SharedMapping file_;
  std::map<const uint8_t*, size_t> sizes_;  // of the records that tensors point to
};

// `bounds`: shared by all archives of a file, because a tensor of one archive may end up in another.
c10::IValue read_archive(PyTorchStreamReader& reader, RecordBounds& bounds, const std::string& name,
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
  auto read_record = [&](const std::string& key) { return bounds.point_at(name + "/" + key); };
  torch::jit::TypeResolver resolve_type;
  torch::jit::ObjLoader load_object;
  if (importer) {
    resolve_type = [importer, unit](const c10::QualifiedName& qualified) {
      return c10::StrongTypePtr(unit, importer->loadType(qualified));
    };
    load_object = [&bounds](const at::StrongTypePtr& type, c10::IValue input) {
      bounds.require_inside(input);  // before a __setstate__ of the model uses it
      return torch::jit::ObjLoaderFunc(type, std::move(input));
    };
  }
  torch::jit::Unpickler unpickler(read, resolve_type, load_object, read_record, at::Device(at::kCPU), false,
                                  torch::jit::Unpickler::defaultTypeParser);
  unpickler.set_version(reader.version());
  auto value = unpickler.parse_ivalue();
  bounds.require_inside(value);
  return value;
}

void require_dense_values(const std::string& path, const torch::jit::Module& module) {
  auto check = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.is_meta()) {
      refuse_model(path, fmt::format("has no values: '{}' was saved from the device \"meta\" (tools/export --empty "
                                     "creates models that the config's \"init\" fills)",
                                     name));
    }
    if (tensor.layout() != at::kStrided) {
      refuse_model(
          path, fmt::format(
                    "has '{}', which is {}; store its indices and values as dense buffers, and combine them in forward",
                    name, c10::str(tensor.layout())));
    }
  };
  for (const auto& parameter : module.named_parameters()) check(parameter.name, parameter.value);
  for (const auto& buffer : module.named_buffers()) check(buffer.name, buffer.value);
}

// `with torch.autocast(...):` switches autocast on and off when it runs (autocast_regions.hpp). TorchScript's own pass
// would insert casts into graphs instead.
void leave_autocast_to_dispatch(const torch::jit::CompilationUnit& unit) {
  for (auto* function : unit.get_functions()) {
    if (function->isGraphFunction()) torch::jit::toGraphFunction(*function)._set_ignore_amp(true);
  }
}

// LibTorch unpacks a compressed record whole, whatever size it claims, and recurses as deeply as records nest. Archives
// have compressed code, of some kilobytes; tensors are read in place, so they must not be compressed.
void require_bounded(const SharedMapping& file) {
  constexpr uint64_t kMaxUnpacked = uint64_t{256} << 20;
  uint64_t unpacked = 0;
  const auto records = read_zip_members({file->data(), file->size()}, fmt::format("model '{}'", file->path()));
  for (const auto& record : records) {
    if (!record.deflated) continue;
    if (record.name.find("/data/") != std::string::npos || record.name.find("/constants/") != std::string::npos) {
      refuse_model(file->path(),
                   fmt::format("was packed again: its tensor record '{}' is compressed, and tensors are read in place; "
                               "torch.jit.load(PATH).save(PATH) writes it as it was",
                               record.name));
    }
    unpacked += record.size;
    if (unpacked > kMaxUnpacked) {
      refuse_model(file->path(),
                   fmt::format("has compressed records of more than {} (record '{}' claims {}): it is "
                               "damaged, or made to fill the memory",
                               format_bytes(kMaxUnpacked), record.name,
                               format_bytes(static_cast<int64_t>(std::min<uint64_t>(record.size, INT64_MAX)))));
    }
  }
  require_shallow(records, file->path());
}

torch::jit::Module read_module(const std::shared_ptr<PyTorchStreamReader>& reader, const SharedMapping& file) {
  auto unit = std::make_shared<torch::jit::CompilationUnit>();
  RecordBounds bounds(*reader, file);
  const auto constant_table = read_archive(*reader, bounds, "constants", nullptr, unit).toTuple();
  const std::vector<at::IValue> constants(constant_table->elements().begin(), constant_table->elements().end());
  auto find_source = [reader](const std::string& qualified) -> std::shared_ptr<torch::jit::Source> {
    std::string record = "code/" + qualified + ".py";
    std::replace(record.begin(), record.end() - 3, '.', '/');
    if (!reader->hasRecord(record)) return nullptr;
    auto [text, size] = reader->getRecord(record);
    return std::make_shared<torch::jit::Source>(std::string(static_cast<const char*>(text.get()), size), record, 1);
  };
  torch::jit::SourceImporter importer(unit, &constants, find_source, reader->version());
  const torch::jit::Module module(read_archive(*reader, bounds, "data", &importer, unit).toObject());
  leave_autocast_to_dispatch(*unit);
  return module;
}

// Reports a file that could not be read. Some tools write files that this or any other LibTorch cannot read back.
[[noreturn]] void explain(const std::string& path, PyTorchStreamReader* reader, const std::string& what) {
  const std::string made = reader ? describe_inference_file(*reader) : "";
  if (made.empty()) refuse_model(path, "cannot be read as TorchScript: " + parse_error_in(what));
  throw UserError(ExitCode::kBadInput, fmt::format("cannot read model '{}': it {}", path, made));
}

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

torch::jit::ExtraFilesMap extra_files_of(const ModelMetadata& metadata) {
  if (metadata.text.empty()) return {};
  return {{kModelMetadataName, metadata.text}};
}

}  // namespace

torch::jit::Module load_mapped_module(const std::string& path) {
  const auto file = MappedFile::open_copy_on_write(path, "model");
  const std::string_view bytes(reinterpret_cast<const char*>(file->data()), file->size());
  require_zip(path, bytes.size(), bytes.substr(0, 4),
              bytes.substr(bytes.size() - std::min(bytes.size(), kZipEndBytes)));
  require_bounded(file);
  std::shared_ptr<PyTorchStreamReader> reader;
  try {
    reader = std::make_shared<PyTorchStreamReader>(path);
    require_torchscript(path, reader->getAllRecords());
    auto module = read_module(reader, file);
    require_dense_values(path, module);
    return module;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    explain(path, reader.get(), error.what());
  }
}

std::string tensor_in_record(const std::string& path, const std::string& record) try {
  const auto file = MappedFile::open_copy_on_write(path, "model");
  require_bounded(file);
  const auto reader = std::make_shared<PyTorchStreamReader>(path);
  const auto module = read_module(reader, file);
  const std::string key = record.substr(record.find('/') + 1);  // without the archive's own name
  const uint8_t* const bytes = file->data() + reader->getRecordOffset(key);
  const auto holds = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.has_storage() && tensor.storage().data() == bytes;
  };
  for (const auto& parameter : module.named_parameters()) {
    if (holds(parameter.value)) return parameter.name;
  }
  for (const auto& buffer : module.named_buffers()) {
    if (holds(buffer.value)) return buffer.name;
  }
  return {};
} catch (const std::exception&) {
  return {};
}

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

void write_skeleton_file(const torch::jit::Module& module, const ModelMetadata& metadata, const std::string& path) {
  for (const auto& held : find_parameters(module)) {
    const auto emptied = at::zeros({}, held.value.options().requires_grad(false))
                             .expand(held.value.sizes())
                             .set_requires_grad(held.value.requires_grad());
    for (const auto& location : held.locations) location.set(emptied);  // tied parameters stay tied
  }
  // Writes to memory first: LibTorch's own writer terminates the process when the disk is full (its destructor throws).
  std::string archive;
  torch::jit::ExportModule(
      module,
      [&](const void* data, size_t size) {
        archive.append(static_cast<const char*>(data), size);
        return size;
      },
      extra_files_of(metadata));
  OutputFile file(path);
  file.write(archive);
  file.finish(/*sync=*/false);
}

}  // namespace dslaunch::runtime::model::file
