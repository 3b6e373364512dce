// Files of torch.save: tensors in all the calls that torch wraps around them, and what is refused.
#include "runtime/checkpoint/pickle/torch_file.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

#include "base/bytes.hpp"
#include "support/expect_error.hpp"
#include "torch_file_writer.hpp"
#include "unit/runtime/data/numpy_samples.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::test::pickled;
using test::message_of;
using test::TempDir;
using test::TorchFileWriter;

namespace {

at::Tensor counting(int64_t numel) {
  return at::arange(numel, at::kFloat);
}

// The tensor that the object is.
at::Tensor read(const TorchFileWriter& writer, const Object& object) {
  const TempDir dir;
  writer.write(dir / "t.pt", object);
  const TorchFile file(dir / "t.pt", /*check_sums=*/true);
  CHECK(TorchFile::is_tensor(file.root()));
  return file.tensor(file.root(), "t").clone();
}

std::string refusal(const TorchFileWriter& writer, const Object& object) {
  const TempDir dir;
  writer.write(dir / "t.pt", object);
  return message_of(ExitCode::kBadInput, dir.path(), [&] {
    const TorchFile file(dir / "t.pt", true);
    file.tensor(file.root(), "t");
  });
}

std::string refusal_of_bytes(const std::string& bytes) {
  const TempDir dir;
  test::write_file(dir / "t.pt", bytes);
  return message_of(ExitCode::kBadInput, dir.path(), [&] { TorchFile(dir / "t.pt", true); });
}

Object wrapped(const char* name, const std::vector<Object>& arguments) {
  return call(global("torch._utils", name), arguments);
}

const std::string kFile = "torch.save file 'DIR/t.pt' ";

}  // namespace

TEST_CASE("a tensor is the part of its storage that its shape and strides name", "[runtime][checkpoint][torch_file]") {
  TorchFileWriter writer;
  const Object storage = writer.storage(counting(12));
  CHECK(read(writer, view(storage, 0, {3, 4}, {4, 1})).equal(counting(12).view({3, 4})));
  CHECK(read(writer, view(storage, 2, {2, 2}, {4, 1})).equal(at::tensor({2.F, 3.F, 6.F, 7.F}).view({2, 2})));
  CHECK(read(writer, view(storage, 0, {4, 3}, {1, 4})).equal(counting(12).view({3, 4}).t()));
  CHECK(read(writer, view(storage, 5, {3}, {0})).equal(at::full({3}, 5.0)));
  CHECK(read(writer, view(storage, 0, {0, 4}, {4, 1})).sizes() == at::IntArrayRef({0, 4}));
  CHECK(read(writer, view(storage, 11, {}, {})).item<float>() == 11);
}

TEST_CASE("every type of storage is read as itself", "[runtime][checkpoint][torch_file]") {
  const std::pair<const char*, at::ScalarType> kTypes[] = {
      {"FloatStorage", at::kFloat},   {"BFloat16Storage", at::kBFloat16}, {"HalfStorage", at::kHalf},
      {"DoubleStorage", at::kDouble}, {"LongStorage", at::kLong},         {"IntStorage", at::kInt},
      {"ShortStorage", at::kShort},   {"CharStorage", at::kChar},         {"ByteStorage", at::kByte}};
  for (const auto& [name, dtype] : kTypes) {
    INFO(name);
    const at::Tensor values = at::tensor({1, 2, 3}, at::kLong).to(dtype);
    TorchFileWriter writer;
    writer.add_record("data/k", {static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
    CHECK(read(writer, view(storage(name, "k", 3), 0, {3}, {1})).equal(values));
  }
  // An untyped storage has its type in the call.
  TorchFileWriter writer;
  const at::Tensor halves = at::tensor({1.5, -2.0}).to(at::kBFloat16);
  writer.add_record("data/0", {static_cast<const char*>(halves.const_data_ptr()), halves.nbytes()});
  const Object untyped =
      tuple({text("storage"), global("torch.storage", "UntypedStorage"), text("0"), text("cpu"), integer(4)}) + "Q";
  const std::vector<Object> arguments{untyped, integer(0), integers({2}), integers({1}), boolean(false), none()};
  auto typed = arguments;
  typed.push_back(global("torch", "bfloat16"));
  CHECK(read(writer, wrapped("_rebuild_tensor_v3", typed)).equal(halves));
  CHECK(refusal(writer, wrapped("_rebuild_tensor_v3", arguments)) ==
        kFile + "holds 't' in the unknown storage type 'torch.storage.UntypedStorage'");
}

TEST_CASE("a tensor is found inside parameters and subclasses", "[runtime][checkpoint][torch_file]") {
  TorchFileWriter writer;
  const Object tensor = writer.tensor(counting(3));
  const Object rebuild = global("torch._utils", "_rebuild_tensor_v2");
  const Object arguments = tensor.substr(rebuild.size(), tensor.size() - rebuild.size() - 1);  // without the call
  for (const auto& object :
       {wrapped("_rebuild_parameter", {tensor, boolean(true)}), wrapped("_rebuild_parameter_with_state", {tensor}),
        call(global("torch.nn.parameter", "Parameter"), {tensor}),
        wrapped("_rebuild_parameter", {wrapped("_rebuild_parameter", {tensor})}),
        call(global("torch._tensor", "_rebuild_from_type_v2"), {rebuild, global("my", "Tensor"), arguments, none()}),
        call(global("torch._tensor", "_rebuild_from_type_v2"),
             {global("torch._utils", "_rebuild_parameter"), global("my", "Tensor"), tuple({tensor}), none()})}) {
    CHECK(read(writer, object).equal(counting(3)));
  }
  const TempDir dir;
  for (const auto& object :
       {text("x"), call(global("my", "thing"), {tensor}), wrapped("_rebuild_parameter", {}),
        call(global("torch._tensor", "_rebuild_from_type_v2"), {global("os", "system"), none(), arguments}),
        call(global("torch._tensor", "_rebuild_from_type_v2"),
             {global("torch._utils", "_rebuild_parameter"), none(), tuple({})})}) {
    writer.write(dir / "t.pt", object);
    CHECK_FALSE(TorchFile::is_tensor(TorchFile(dir / "t.pt", true).root()));
  }
}

TEST_CASE("tensors that are damaged are refused by name", "[runtime][checkpoint][torch_file]") {
  TorchFileWriter writer;
  const Object storage = writer.storage(counting(4));
  const std::string beyond = kFile + "is damaged: 't' reaches beyond its storage data/0";
  CHECK(refusal(writer, view(storage, 0, {5}, {1})) == beyond);
  CHECK(refusal(writer, view(storage, 1, {4}, {1})) == beyond);
  CHECK(refusal(writer, view(storage, 0, {2, 2}, {3, 1})) == beyond);
  CHECK(refusal(writer, view(storage, 0, {1 << 25}, {0})) == beyond);
  CHECK(refusal(writer, view(storage, 0, {int64_t{1} << 40, int64_t{1} << 40}, {0, 0})) ==
        kFile + "is damaged: 't' has an impossible shape");
  CHECK(refusal(writer, view(storage, 0, {2, 2}, {1})) == kFile + "is damaged: 't' has a bad shape");
  CHECK(refusal(writer, view(storage, 0, {-1}, {1})) == kFile + "is damaged: 't' has a bad shape");
  CHECK(refusal(writer, view(storage, -1, {1}, {1})) == kFile + "is damaged: 't' has a bad offset");
  CHECK(refusal(writer, view(text("s"), 0, {1}, {1})) == kFile + "is damaged: 't' has no storage");
  CHECK(refusal(writer, view(test::pickled::storage("FloatStorage", "7", 4), 0, {1}, {1})) ==
        kFile + "is damaged: the bytes of 't' (data/7) are missing");
  CHECK(refusal(writer, view(test::pickled::storage("ComplexFloatStorage", "0", 4), 0, {1}, {1})) ==
        kFile + "holds 't' in the unknown storage type 'torch.ComplexFloatStorage'");
  CHECK(refusal(writer, wrapped("_rebuild_tensor_v2", {storage})) == kFile + "is damaged: 't' lacks its shape");
  CHECK(refusal(writer, text("x")) == kFile + "has no tensor in 't'");
  CHECK(refusal(writer, call(global("my", "Thing"), {})) == kFile + "has no tensor in 't', but a my.Thing");
}

TEST_CASE("files that torch.save did not write are refused with what they are", "[runtime][checkpoint][torch_file]") {
  CHECK(refusal_of_bytes("\x80\x02}.") ==
        kFile + "is of the form from before torch 1.6; load and save it again with torch.save");
  CHECK(refusal_of_bytes("no archive") ==
        kFile + "is truncated or not a zip archive: its central directory is missing; copy or save it again");
  const auto packed = *from_hex(kNpzDeflated);
  CHECK(refusal_of_bytes({packed.begin(), packed.end()}) == kFile + "was packed again: member 'x.npy' is compressed");
  const TempDir dir;
  const auto with_records = [&](const std::vector<std::pair<std::string, std::string>>& records) {
    TorchFileWriter::write_records(dir / "t.pt", records);
    return refusal_of_bytes(test::read_file(dir / "t.pt"));
  };
  CHECK(with_records({{"readme", "x"}}) ==
        kFile + "holds no data.pkl: it is a zip archive, but not what torch.save writes");
  CHECK(with_records({{"byteorder", "big"}, {"data.pkl", "N."}}) == kFile + "was written on a big-endian machine");
  CHECK(with_records({{"data.pkl", "N"}}) ==
        "torch.save file 'DIR/t.pt': its pickle is damaged: it ends too early (byte 1 of the pickle)");
}

TEST_CASE("a byte that changed is found by its checksum, unless that is not wanted",
          "[runtime][checkpoint][torch_file]") {
  const TempDir dir;
  TorchFileWriter writer;
  writer.write(dir / "t.pt", writer.tensor(at::full({4}, 1.5)));
  std::string bytes = test::read_file(dir / "t.pt");
  const at::Tensor values = at::full({4}, 1.5);
  const size_t at = bytes.find(std::string(static_cast<const char*>(values.const_data_ptr()), values.nbytes()));
  REQUIRE(at != bytes.npos);
  bytes[at] = 1;
  test::write_file(dir / "t.pt", bytes);
  CHECK(message_of(ExitCode::kBadInput, dir.path(), [&] { TorchFile(dir / "t.pt", true); }) ==
        kFile + "is damaged: the checksum of its member 'archive/data/0' does not match; use another checkpoint");
  CHECK_NOTHROW(TorchFile(dir / "t.pt", false));
  CHECK(message_of(ExitCode::kNoInput, dir.path(), [&] { TorchFile(dir / "none.pt", true); }) ==
        "cannot read torch.save file 'DIR/none.pt': No such file or directory");
}
