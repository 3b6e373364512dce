// Kept keys and values of texts beside plain tensors.
#include "runtime/model/decoding/key_cache.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "support/expect_error.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime::model::decoding;

namespace {

constexpr int64_t kHeads = 2, kWidth = 3;

void add(KeyCache& cache, int text, at::Tensor& kept, int64_t count) {
  const at::Tensor keys = at::randn({kHeads, count, kWidth});
  cache.reserve(text, count);
  cache.put(0, text, keys, keys * 2);
  cache.advance(text, count);
  kept = kept.defined() ? at::cat({kept, keys}, 1) : keys;
}

}  // namespace

TEST_CASE("texts that begin alike continue apart", "[runtime][model][key_cache]") {
  at::manual_seed(1);
  std::mt19937 random(1);
  KeyCache cache(0);
  std::map<int, at::Tensor> texts;
  texts[cache.open()];
  for (int i = 0; i < 60; ++i) {
    const int text = std::next(texts.begin(), static_cast<int>(random() % texts.size()))->first;
    if (i % 5 == 4 && texts.size() > 1) {
      cache.close(text);
      texts.erase(text);
    } else if (i % 3 == 2) {
      texts[cache.fork(text)] = texts[text];
    } else {
      add(cache, text, texts[text], 1 + static_cast<int64_t>(random() % 400));
    }
    for (const auto& [number, kept] : texts) {
      if (!kept.defined()) continue;
      REQUIRE(cache.length(number) == kept.size(1));
      const auto [keys, values] = cache.get(0, number, kept.size(1));
      REQUIRE(at::equal(keys, kept));
      REQUIRE(at::equal(values, kept * 2));
    }
  }
}

TEST_CASE("a cache that does not fit names both numbers", "[runtime][model][key_cache]") {
  const int64_t page = 2 * kHeads * KeyCache::kPageTokens * kWidth * 4;
  KeyCache cache(2 * page);
  const int text = cache.open();
  at::Tensor kept;
  add(cache, text, kept, 2 * KeyCache::kPageTokens);
  CHECK(cache.peak_bytes() == 2 * page);
  test::expect_error(ExitCode::kBadInput, {"needs 9.00 KiB for 192 tokens, and may take 6.00 KiB", "--cache_bytes"},
                     [&] { cache.reserve(text, 1); });
}
