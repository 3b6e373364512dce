// The communicators of a rank along the axes of the mesh. `world`: for what all ranks must agree on, and for sums to
// which each rank adds only what it owns. `data`: the ranks with the same part of the model, which divide the samples
// and the optimizer state among them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/mesh.hpp"

namespace dslaunch::comm {

// For those who issue collectives; OwnedGroups owns the communicators.
struct Groups {
  Mesh mesh;
  MeshCoordinates own;
  Communicator& world;             // its ranks are those of the mesh
  Communicator& data;              // its ranks are data ranks; the same object as `world` when all ranks are data ranks
  Communicator* pipe = nullptr;    // null: one stage
  Communicator* tensor = nullptr;  // null: one tensor rank
  Communicator* tied = nullptr;    // the stages of a pipe group that share weights with this stage; null: none

  // Groups where every rank of `world` is a data rank.
  static Groups of_data_ranks(Communicator& world);

  // The loss comes out of the last stage, the same on its tensor ranks: one of them contributes it to sums.
  bool contributes_loss() const { return own.pipe == mesh.pipe - 1 && own.tensor == 0; }
};

// Creates a communicator of the ranks, in their order; no other group has the same name.
using MakeGroup = std::function<std::unique_ptr<Communicator>(const std::string& name, const std::vector<int>& ranks)>;

struct OwnedGroups {
  Mesh mesh;
  MeshCoordinates own;
  std::unique_ptr<Communicator> world;
  std::unique_ptr<Communicator> data;          // null: `world`
  std::unique_ptr<Communicator> pipe, tensor;  // null: of one rank

  // Creates the communicators of `rank`, on all ranks in the same order. When `make` throws, those made before stay.
  void open(const Mesh& of_job, int rank, const MakeGroup& make);
  Groups groups() const;
};

}  // namespace dslaunch::comm
