#include "runtime/checkpoint/pickle/torch_file.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/pickle/pickle_reader.hpp"
#include "runtime/state/dtype_names.hpp"
#include "runtime/state/tensor_extent.hpp"

namespace dslaunch::runtime {
namespace {

using pickle::Kind;
using pickle::Value;

constexpr char kWhat[] = "torch.save file";
constexpr int64_t kMaxRepeated = 1 << 24;  // elements of an expanded tensor, in addition to those of its storage
constexpr std::string_view kPickleName = "/data.pkl", kStorages = "/data/", kByteOrder = "/byteorder";

constexpr DtypeName kStorageTypes[] = {
    {"torch.FloatStorage", at::kFloat},
    {"torch.BFloat16Storage", at::kBFloat16},
    {"torch.HalfStorage", at::kHalf},
    {"torch.DoubleStorage", at::kDouble},
    {"torch.LongStorage", at::kLong},
    {"torch.IntStorage", at::kInt},
    {"torch.ShortStorage", at::kShort},
    {"torch.CharStorage", at::kChar},
    {"torch.ByteStorage", at::kByte},
    {"torch.BoolStorage", at::kBool},
    {"torch.storage.UntypedStorage", at::kByte},
    {"torch.UntypedStorage", at::kByte},
};
constexpr DtypeName kDtypes[] = {
    {"torch.float32", at::kFloat},  {"torch.bfloat16", at::kBFloat16}, {"torch.float16", at::kHalf},
    {"torch.float64", at::kDouble}, {"torch.int64", at::kLong},        {"torch.int32", at::kInt},
    {"torch.int16", at::kShort},    {"torch.int8", at::kChar},         {"torch.uint8", at::kByte},
    {"torch.bool", at::kBool},
};

// The call that rebuilds a tensor, inside the calls that wrap it (parameters, subclasses). Null when there is none.
const Value* rebuild_call(const Value* value, std::vector<const Value*>* arguments) {
  for (int depth = 0; depth < 8; ++depth) {
    const auto name = value->class_name();
    if (!value->is(Kind::kObject) || !value->arguments) return nullptr;
    const auto& given = value->arguments->items;
    if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor" ||
        name == "torch._utils._rebuild_tensor_v3") {
      *arguments = given;
      return value;
    }
    if ((name == "torch._utils._rebuild_parameter" || name == "torch._utils._rebuild_parameter_with_state" ||
         name == "torch.nn.parameter.Parameter") &&
        !given.empty()) {
      value = given[0];
    } else if (name == "torch._tensor._rebuild_from_type_v2" && given.size() >= 3 && given[0]->is(Kind::kGlobal)) {
      if (given[0]->text.rfind("torch._utils._rebuild_", 0) != 0) return nullptr;
      if (given[0]->text.rfind("torch._utils._rebuild_tensor", 0) == 0) {
        *arguments = given[2]->items;
        return given[0];
      }
      if (given[2]->items.empty()) return nullptr;
      value = given[2]->items[0];
    } else {
      return nullptr;
    }
  }
  return nullptr;
}

}  // namespace

TorchFile::TorchFile(const std::string& path, bool check_sums) : file_(MappedFile::open(path, kWhat)) {
  open_members(check_sums);
}

void TorchFile::refuse(const std::string& what) const {
  throw UserError(ExitCode::kBadInput, fmt::format("{} '{}' {}", kWhat, file_->path(), what));
}

void TorchFile::open_members(bool check_sums) {
  const std::span<const uint8_t> bytes(file_->data(), file_->size());
  const std::string subject = fmt::format("{} '{}'", kWhat, file_->path());
  if (bytes.size() >= 2 && bytes[0] == 0x80 && bytes[1] <= 5) {
    refuse("is of the form from before torch 1.6; load and save it again with torch.save");
  }
  std::optional<ZipMember> pickled;
  const auto members = read_zip_members(bytes, subject);
  check_sums = check_sums && has_checksums(members);
  for (const auto& member : members) {
    if (member.deflated) refuse(fmt::format("was packed again: member '{}' is compressed", member.name));
    if (check_sums && !matches_crc(member)) {
      refuse(fmt::format("is damaged: the checksum of its member '{}' does not match; use another checkpoint",
                         member.name));
    }
    if (member.name.ends_with(kPickleName)) {
      pickled = member;
    } else if (const size_t at = member.name.find(kStorages); at != std::string::npos) {
      storages_[member.name.substr(at + kStorages.size())] = member;
    } else if (member.name.ends_with(kByteOrder)) {
      if (std::string_view(reinterpret_cast<const char*>(member.bytes.data()), member.bytes.size()) != "little") {
        refuse("was written on a big-endian machine");
      }
    }
  }
  if (!pickled) refuse("holds no data.pkl: it is a zip archive, but not what torch.save writes");
  document_ = pickle::read_pickle(pickled->bytes, subject);
}

bool TorchFile::is_tensor(const Value& value) {
  std::vector<const Value*> arguments;
  return rebuild_call(&value, &arguments) != nullptr;
}

const Value& TorchFile::storage_id(const Value& storage, const std::string& name) const {
  if (!storage.is(Kind::kPersistent) || storage.arguments->items.size() < 5 ||
      storage.arguments->items[0]->text != "storage") {
    refuse(fmt::format("is damaged: '{}' has no storage", name));
  }
  return *storage.arguments;
}

TorchFile::Place TorchFile::place(const Value& value, const std::string& name) const {
  std::vector<const Value*> arguments;
  const Value* call = rebuild_call(&value, &arguments);
  if (!call) {
    refuse(fmt::format("has no tensor in '{}'{}", name,
                       value.class_name().empty() ? "" : fmt::format(", but a {}", value.class_name())));
  }
  if (arguments.size() < 4) refuse(fmt::format("is damaged: '{}' lacks its shape", name));
  const Value& id = storage_id(*arguments[0], name);
  Place out;
  auto dtype = dtype_named(kStorageTypes, id.items[1]->text);
  const bool untyped = id.items[1]->text.ends_with("UntypedStorage");
  if (untyped) dtype = arguments.size() >= 7 ? dtype_named(kDtypes, arguments[6]->text) : std::nullopt;
  if (!dtype) refuse(fmt::format("holds '{}' in the unknown storage type '{}'", name, id.items[1]->text));
  out.dtype = *dtype;
  out.storage = id.items[2]->is(Kind::kInteger) ? std::to_string(id.items[2]->integer) : id.items[2]->text;
  auto integers = [&](const Value& list) {
    std::vector<int64_t> numbers;
    for (const Value* item : list.items) {
      if (!item->is(Kind::kInteger) || item->integer < 0) refuse(fmt::format("is damaged: '{}' has a bad shape", name));
      numbers.push_back(item->integer);
    }
    return numbers;
  };
  if (!arguments[1]->is(Kind::kInteger) || arguments[1]->integer < 0) {
    refuse(fmt::format("is damaged: '{}' has a bad offset", name));
  }
  out.offset = arguments[1]->integer;
  out.shape = integers(*arguments[2]);
  out.strides = integers(*arguments[3]);
  if (out.shape.size() != out.strides.size()) refuse(fmt::format("is damaged: '{}' has a bad shape", name));
  return out;
}

at::Tensor TorchFile::tensor(const Value& value, const std::string& name) const {
  const Place placed = place(value, name);
  const auto numel = numel_of(placed.shape);
  const auto extent = storage_extent(placed.shape, placed.strides, placed.offset);
  if (!numel || !extent) refuse(fmt::format("is damaged: '{}' has an impossible shape", name));
  if (*numel == 0) return at::empty(placed.shape, placed.dtype);
  const auto storage = storages_.find(placed.storage);
  if (storage == storages_.end())
    refuse(fmt::format("is damaged: the bytes of '{}' (data/{}) are missing", name, placed.storage));
  const auto& bytes = storage->second.bytes;
  const auto item = static_cast<int64_t>(c10::elementSize(placed.dtype));
  const auto available = static_cast<int64_t>(bytes.size()) / item;
  // Otherwise a view with strides of 0 could claim more elements than fit into memory.
  if (*extent > available || *numel > std::max(available, kMaxRepeated)) {
    refuse(fmt::format("is damaged: '{}' reaches beyond its storage data/{}", name, placed.storage));
  }
  const auto begin = static_cast<size_t>(bytes.data() - file_->data()) + static_cast<size_t>(placed.offset * item);
  const at::Tensor touched = tensor_over(file_, begin, placed.dtype, {*extent - placed.offset});
  return touched.as_strided(placed.shape, placed.strides).contiguous();
}

}  // namespace dslaunch::runtime
