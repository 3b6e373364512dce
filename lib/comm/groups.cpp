#include "comm/groups.hpp"

#include "base/format.hpp"

namespace dslaunch::comm {

Groups Groups::of_data_ranks(Communicator& world) {
  return {{.data = world.size()}, {.data = world.rank()}, world, world};
}

Groups OwnedGroups::groups() const {
  return {mesh, own, *world, data ? *data : *world, pipe.get(), tensor.get()};
}

void OwnedGroups::open(const Mesh& of_job, int rank, const MakeGroup& make) {
  mesh = of_job;
  own = mesh.coordinates(rank);
  const auto make_along = [&](const char* axis, const MeshAxes& axes) {
    return make(fmt::format("{}.{}", axis, mesh.group_index(rank, axes)), mesh.group(rank, axes));
  };
  world = make("world", mesh.group(rank, {.data = true, .pipe = true, .tensor = true}));
  if (mesh.data < mesh.size()) data = make_along("data", {.data = true});
  if (mesh.pipe > 1) pipe = make_along("pipe", {.pipe = true});
  if (mesh.tensor > 1) tensor = make_along("tensor", {.tensor = true});
}

}  // namespace dslaunch::comm
