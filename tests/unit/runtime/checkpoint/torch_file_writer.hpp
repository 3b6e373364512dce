// Files as Python's torch.save writes them, made in a test: pickles of protocol 2 from pieces, each function returning
// the opcodes of one object, and the zip archive of the pickle and the storages.
#pragma once
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.hpp"

namespace dslaunch::test {
namespace pickled {

using Object = std::string;  // opcodes that leave one value on the stack

template <class T>
std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

inline Object none() {
  return "N";
}
inline Object integer(int64_t value) {
  return "\x8a\x08" + little_endian(value);
}
inline Object boolean(bool value) {
  return value ? "\x88" : "\x89";
}
inline Object number(double value) {
  std::string bytes = little_endian(value);
  std::reverse(bytes.begin(), bytes.end());
  return "G" + bytes;
}
inline Object text(const std::string& value) {
  return "X" + little_endian(static_cast<uint32_t>(value.size())) + value;
}
inline std::string joined(const std::vector<Object>& objects) {
  std::string out;
  for (const auto& object : objects) out += object;
  return out;
}
inline Object list(const std::vector<Object>& items) {
  return "](" + joined(items) + "e";
}
inline Object tuple(const std::vector<Object>& items) {
  return "(" + joined(items) + "t";
}
inline Object integers(const std::vector<int64_t>& values) {
  std::vector<Object> items;
  for (int64_t value : values) items.push_back(integer(value));
  return tuple(items);
}
inline Object dict(const std::vector<std::pair<Object, Object>>& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += key + value;
  return out + "u";
}
inline Object global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline Object call(const Object& callable, const std::vector<Object>& arguments) {
  return callable + tuple(arguments) + "R";
}
inline Object with_state(const Object& object, const Object& state) {
  return object + state + "b";
}

// A storage of torch.save: "FloatStorage" and its key in the archive.
inline Object storage(const std::string& type, const std::string& key, int64_t numel) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), integer(numel)}) + "Q";
}
// A tensor that views a storage.
inline Object view(const Object& storage, int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, integer(offset), integers(shape), integers(strides), boolean(false),
               call(global("collections", "OrderedDict"), {})});
}

// A dict with names as its keys, which a test changes before it writes it.
class Dict {
 public:
  Dict() = default;
  Dict(std::initializer_list<std::pair<std::string, Object>> entries) : entries_(entries) {}
  Dict& set(const std::string& name, const Object& value) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first == name; });
    if (found == entries_.end()) {
      entries_.emplace_back(name, value);
    } else {
      found->second = value;
    }
    return *this;
  }
  Dict& drop(const std::string& name) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.first == name; });
    return *this;
  }
  Object object() const {
    std::vector<std::pair<Object, Object>> out;
    for (const auto& [name, value] : entries_) out.emplace_back(text(name), value);
    return dict(out);
  }

 private:
  std::vector<std::pair<std::string, Object>> entries_;
};

}  // namespace pickled

class TorchFileWriter {
 public:
  // Adds the values as a storage of its own.
  pickled::Object tensor(const at::Tensor& values) {
    const at::Tensor flat = values.contiguous();
    return pickled::view(storage(flat), 0, flat.sizes().vec(), flat.strides().vec());
  }
  // Adds a storage with the tensor's elements, for views of it.
  pickled::Object storage(const at::Tensor& values) {
    const std::string key = std::to_string(num_storages_++);
    const at::Tensor flat = values.contiguous();
    records_.emplace_back("data/" + key, std::string(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()));
    return pickled::storage(type_of(flat.scalar_type()), key, flat.numel());
  }
  void add_record(const std::string& name, const std::string& bytes) { records_.emplace_back(name, bytes); }

  void write(const std::string& path, const pickled::Object& root) const {
    auto records = records_;
    records.emplace_back("data.pkl", "\x80\x02" + root + ".");
    write_records(path, records);
  }
  static void write_records(const std::string& path, const std::vector<std::pair<std::string, std::string>>& records) {
    std::string bytes;
    {
      caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
        bytes.append(static_cast<const char*>(data), size);
        return size;
      });
      for (const auto& [name, content] : records) writer.writeRecord(name, content.data(), content.size());
      writer.writeEndOfFile();
    }
    write_file(path, bytes);
  }

 private:
  static std::string type_of(at::ScalarType dtype) {
    switch (dtype) {
      case at::kBFloat16:
        return "BFloat16Storage";
      case at::kHalf:
        return "HalfStorage";
      case at::kLong:
        return "LongStorage";
      default:
        return "FloatStorage";
    }
  }

  int num_storages_ = 0;
  std::vector<std::pair<std::string, std::string>> records_;
};

}  // namespace dslaunch::test
