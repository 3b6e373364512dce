// A file written by Python's torch.save: a zip archive of one pickle and the raw bytes of storages. The file is mapped;
// tensors are views that keep the mapping alive. Immutable after construction, so any thread may read.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>

#include "runtime/checkpoint/pickle/pickle_value.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/zip_members.hpp"

namespace dslaunch::runtime {

class TorchFile {
 public:
  // `check_sums`: checks the CRC of every member, which reads the whole file once. Throws UserError: 66 when the file
  // cannot be read, 65 with the reason when it is invalid or in the format from before torch 1.6.
  TorchFile(const std::string& path, bool check_sums);

  const std::string& path() const { return file_->path(); }
  const pickle::Value& root() const { return document_->root(); }

  static bool is_tensor(const pickle::Value& value);
  // Which part of which storage a tensor uses, without reading its bytes: equal for tied parameters.
  struct Place {
    std::string storage;
    int64_t offset = 0;
    std::vector<int64_t> shape, strides;
    at::ScalarType dtype = at::kFloat;
    bool operator==(const Place&) const = default;
  };
  // Both throw UserError(65) when the value is not a tensor inside its storage; `name` is for the message.
  Place place(const pickle::Value& value, const std::string& name) const;
  // Contiguous, on the host, read-only; a view if it is contiguous in the file.
  at::Tensor tensor(const pickle::Value& value, const std::string& name) const;

 private:
  [[noreturn]] void refuse(const std::string& what) const;
  void open_members(bool check_sums);
  const pickle::Value& storage_id(const pickle::Value& storage, const std::string& name) const;

  std::shared_ptr<const MappedFile> file_;
  std::map<std::string, ZipMember> storages_;  // by key
  std::unique_ptr<const pickle::Document> document_;
};

}  // namespace dslaunch::runtime
