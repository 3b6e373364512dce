// In which passes the texts of several requests are read and written.
#include "runtime/engine/inference/session.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>

using namespace dslaunch::runtime::engine::inference;

namespace {

// Keeps the tokens of each pass; token 0 follows every text.
class CountingDecoder final : public Decoder {
 public:
  int open(const std::vector<int64_t>& /*encoder_ids*/) override { return next_++; }
  int fork(int /*text*/) override { return next_++; }
  void close(int /*text*/) override {}
  at::Tensor append(const std::vector<Piece>& pieces) override {
    passes.emplace_back();
    for (const Piece& piece : pieces) passes.back().push_back(piece.ids.size());
    return at::one_hot(at::zeros({std::ssize(pieces)}, at::kLong), 4).to(at::kFloat);
  }

  std::vector<std::vector<size_t>> passes;

 private:
  int next_ = 0;
};

std::vector<std::vector<size_t>> passes_of(const std::vector<size_t>& prompts, int64_t num_tokens) {
  CountingDecoder decoder;
  Session session(decoder);
  for (const size_t length : prompts) {
    Request request{.ids = std::vector<int64_t>(length, 1), .num_tokens = num_tokens};
    request.sampling.temperature = 0;
    session.add(std::move(request));
  }
  while (!session.is_done()) session.step();
  CHECK(session.report().first_tokens.size() == prompts.size());
  return decoder.passes;
}

}  // namespace

TEST_CASE("prompts are read side by side", "[runtime][engine][session]") {
  CHECK(passes_of({3, 5}, 2) == std::vector<std::vector<size_t>>{{3, 5}, {1, 1}});
}

TEST_CASE("a pass reads a bounded number of prompt tokens while the other texts are written",
          "[runtime][engine][session]") {
  CHECK(passes_of({5000, 3000, 500, 20000, 4}, 3) ==
        std::vector<std::vector<size_t>>{{5000, 3000}, {1, 1, 500}, {1, 1, 1, 20000}, {1, 1, 4}, {1, 1}, {1}});
}
