// The parameters of a model in a file without a name, for inference: each unit's are read when the unit is called,
// those of the units after it ahead, in the order of the last forward. Host memory holds the buffers of the file and
// the units that are running. One thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/offload/parameter_file.hpp"
#include "runtime/state/parameter_table.hpp"
#include "runtime/state/unit_parameters.hpp"

namespace dslaunch::runtime::engine::inference {

class StreamedParameters final : public UnitParameters {
 public:
  // Fills `out` (1-D, in host memory) with the elements of a parameter from `begin` on.
  using ReadElements = std::function<void(int parameter, int64_t begin, const at::Tensor& out)>;

  // Copies the trained parameters and the frozen ones of units (UnitInfo::frozen) into the file, in their own dtypes, a
  // part at a time. `table` must outlive this object. Throws as ParameterFile does.
  StreamedParameters(const ParameterTable& table, const offload::ParameterFileOptions& options,
                     const ReadElements& read);

  UnitValues acquire(int unit, UnitCall call) override;
  void release(int unit) override;
  void prepare_backward(int) override {}
  void take_gradients(int, std::vector<at::Tensor>) override {}

 private:
  struct Member {
    int parameter = 0;
    int64_t begin = 0;  // elements of its group
  };
  struct Group {  // the parameters of one unit in one dtype: a slice of the file
    at::ScalarType dtype = at::kFloat;
    std::vector<Member> members;
    int64_t numel = 0;
  };
  struct Unit {
    std::vector<int> groups;
    int num_calls = 0;           // that are running
    std::vector<at::Tensor> of;  // by parameter of the model, while they are; undefined: of other units
  };

  void plan_groups();
  void add_member(int unit, int parameter);
  void begin_forward();
  void read_unit(int unit);
  void read_ahead();

  const ParameterTable& table_;
  std::vector<Group> groups_;
  std::vector<Unit> units_;
  std::vector<int> last_forward_, this_forward_;  // units, as they were called
  std::unique_ptr<offload::ParameterFile> file_;
};

}  // namespace dslaunch::runtime::engine::inference
