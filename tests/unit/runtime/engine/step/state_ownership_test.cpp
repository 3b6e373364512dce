#include "runtime/engine/step/state_ownership.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <stdexcept>
#include <string>

#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;

namespace {

// On two tensor ranks: "alike" is whole on both, each has a half of "halves", both have the same rows of "copies".
ParameterTable table_of(int tensor_rank, int tensor_ranks) {
  ParameterTable table;
  table.parameters = {{.name = "alike", .shape = {4}, .numel = 4}};
  if (tensor_ranks == 1) return table;
  const int64_t half = tensor_rank;
  table.parameters.push_back(
      {.name = "halves", .shape = {3}, .numel = 3, .slice = LocalSlice{0, 6, {{3 * half, 3 * half + 3}}}});
  table.parameters.push_back(
      {.name = "copies", .shape = {2}, .numel = 2, .slice = LocalSlice{0, 4, {{1, 3}}, tensor_rank, 2}});
  return table;
}

// Of the parameter, by rank of the mesh: 's' for a shard that counts, 'u' where it does unsharded, too, '-' for none.
std::string owners(const comm::Mesh& mesh, int parameter) {
  std::string out(static_cast<size_t>(mesh.size()), '?');
  std::mutex mutex;
  test::run_mesh(mesh, [&](const comm::Groups& groups) {
    const auto table = table_of(groups.own.tensor, mesh.tensor);
    const StateOwnership ownership(table, {}, groups);
    const std::lock_guard lock(mutex);
    out[static_cast<size_t>(groups.world.rank())] = ownership.owns_unsharded(parameter) ? 'u'
                                                    : ownership.owns_shard(parameter)   ? 's'
                                                                                        : '-';
  });
  return out;
}

}  // namespace

TEST_CASE("elements have one owner in a mesh, buffers one of each stage", "[runtime][engine][ownership]") {
  CHECK(owners({3, 1, 1}, 0) == "uss");
  CHECK(owners({1, 2, 1}, 0) == "uu");  // stages have different parameters
  CHECK(owners({2, 1, 2}, 0) == "u-s-");
  CHECK(owners({2, 1, 2}, 1) == "uuss");
  CHECK(owners({2, 1, 2}, 2) == "u-s-");
  for (const comm::Mesh& mesh : {comm::Mesh{4, 1, 1}, comm::Mesh{2, 1, 2}, comm::Mesh{2, 2, 2}, comm::Mesh{1, 3, 2}}) {
    std::atomic<int> buffers{0};
    test::run_mesh(mesh, [&](const comm::Groups& groups) {
      buffers += StateOwnership(table_of(groups.own.tensor, mesh.tensor), {}, groups).owns_buffers() ? 1 : 0;
    });
    CHECK(buffers == mesh.pipe);
  }
}

TEST_CASE("what counts in a span are ranges of the owned parameters", "[runtime][engine][ownership]") {
  test::run_mesh({1, 1, 2}, [&](const comm::Groups& groups) {
    const bool is_first = groups.own.tensor == 0;
    const StateOwnership ownership(table_of(groups.own.tensor, 2), {}, groups);
    const FlatGroup group{.segments = {{0, 0, 4}, {1, 4, 3}, {2, 7, 2}}, .numel = 9, .padded_numel = 64};
    const auto ranges = ownership.owned_ranges(group, {.range = {2, 64}});
    if (ownership.owns_all_shards() != is_first) throw std::logic_error("owns_all_shards()");
    if (ranges != (is_first ? std::vector<Range>{{2, 9}} : std::vector<Range>{{4, 7}}))
      throw std::logic_error("ranges");
  });
}
