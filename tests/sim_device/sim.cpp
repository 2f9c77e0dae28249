// "sim": an accelerator made of host memory, on the key that torch reserves for others' devices.
//
// Its addresses differ from the host's in one bit, so that code of the CPU that follows one faults.
// Every operator runs the CPU's kernel on aliases: tensors of the CPU over the same memory. So the
// results are the CPU's, bit for bit. Tensors of different devices are refused as CUDA does.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>

namespace {

using c10::IValue;
using torch::jit::Stack;

constexpr auto SIM = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 2;
thread_local c10::DeviceIndex current = 0;

// ---- Memory ------------------------------------------------------------------------------------

// The address of the device for one of the host, and the other way round. No memory of a process
// has this bit, neither on x86-64 nor on ARM64.
void* flipped(const void* address) {
  constexpr auto bit = uintptr_t(1) << 55;
  return address ? reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(address) ^ bit) : nullptr;
}

struct Memory final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* host = bytes ? std::malloc(bytes) : nullptr;
    TORCH_CHECK(host || !bytes, "sim is out of memory");
    return {flipped(host), host, &std::free, c10::Device(SIM, current)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(flipped(to), flipped(from), bytes);
  }
};
Memory memory;
REGISTER_ALLOCATOR(SIM, &memory);

bool on_sim(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == SIM; }

// ---- Devices and streams: everything is synchronous ------------------------------------------------

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return SIM; }
  c10::Device getDevice() const override { return {SIM, current}; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < DEVICES, "there is no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current = device.index();
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(c10::DeviceIndex) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// ---- Random numbers: the CPU's kernels, with the state of a generator of the device --------------

struct Generator final : at::CPUGeneratorImpl {
  explicit Generator(c10::DeviceIndex index) { device_ = c10::Device(SIM, index); }
};

at::Generator& default_generator(c10::DeviceIndex index) {
  static at::Generator all[DEVICES] = {at::make_generator<Generator>(0),
                                       at::make_generator<Generator>(1)};
  return all[index < 0 ? current : index];
}

// While it lives, the CPU's default generator draws the numbers of one of the device.
struct Drawing {
  at::Generator host = at::detail::getDefaultCPUGenerator(), device;
  at::Tensor before = host.get_state();
  explicit Drawing(at::Generator from) : device(std::move(from)) {
    host.set_state(device.get_state());
  }
  ~Drawing() {
    device.set_state(host.get_state());
    host.set_state(before);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice({SIM, index}); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return Guard().exchangeDevice({SIM, index}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current : index);
  }
};

// ---- Aliases -------------------------------------------------------------------------------------

// The arguments of one call, on the device and as the CPU sees them.
struct Aliases {
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;      // there, here
  std::vector<std::pair<c10::Storage, c10::Storage>> storages;  // there, here
  std::optional<c10::Device> device;

  c10::Storage host(const c10::Storage& there) {
    for (auto& [one, other] : storages)
      if (one.is_alias_of(there)) return other;
    c10::Storage here(c10::Storage::use_byte_size_t(), there.nbytes(),
                      c10::DataPtr(flipped(there.data()), c10::Device(c10::kCPU)),
                      c10::GetCPUAllocator(), /*resizable=*/true);
    storages.emplace_back(there, here);
    return here;
  }

  at::Tensor host(const at::Tensor& there) {
    for (auto& [one, other] : tensors)
      if (one.is_same(there)) return other;
    at::Tensor here = there;
    if (on_sim(there)) {
      if (!device) device = there.device();
      here = at::detail::make_tensor<c10::TensorImpl>(
          host(there.storage()), c10::DispatchKeySet(c10::DispatchKey::CPU), there.dtype());
      here.unsafeGetTensorImpl()->set_sizes_and_strides(there.sizes(), there.strides(),
                                                        there.storage_offset());
    }
    if (there.defined()) tensors.emplace_back(there, here);
    return here;
  }

  // A storage of the device with the contents of a new one of the CPU.
  c10::Storage moved(const c10::Storage& here) {
    c10::DeviceGuard guard(*device);
    c10::Storage there(c10::Storage::use_byte_size_t(), here.nbytes(),
                       memory.allocate(here.nbytes()), &memory, /*resizable=*/true);
    if (here.nbytes()) std::memcpy(flipped(there.data()), here.data(), here.nbytes());
    storages.emplace_back(there, here);
    return there;
  }

  // What an operator has returned: an argument, a view of one, or something new.
  at::Tensor back(const at::Tensor& here) {
    if (!here.defined() || !here.device().is_cpu() || !device) return here;
    for (auto& [there, argument] : tensors)
      if (argument.is_same(here)) return there;
    at::Tensor there;
    for (auto& [base, argument] : tensors)
      if (on_sim(base) && argument.storage().is_alias_of(here.storage()))
        // With the keys of its base, which in inference mode tell what was made outside of it.
        there = at::detail::make_tensor<c10::TensorImpl>(
            c10::TensorImpl::VIEW, c10::Storage(base.storage()), base.key_set(), here.dtype());
    if (!there.defined())
      there = at::detail::make_tensor<c10::TensorImpl>(
          moved(here.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), here.dtype());
    there.unsafeGetTensorImpl()->set_sizes_and_strides(here.sizes(), here.strides(),
                                                       here.storage_offset());
    return there;
  }

  // Carry over what the operator did to its arguments: sizes, and memory of another size or place.
  void settle() {
    for (auto& [there, here] : storages) {
      if (here.data() == flipped(there.data())) continue;
      c10::DeviceGuard guard(there.device());
      there.set_data_ptr_noswap(memory.allocate(here.nbytes()));
      there.set_nbytes(here.nbytes());
      if (here.nbytes()) std::memcpy(flipped(there.data()), here.data(), here.nbytes());
    }
    for (auto& [there, here] : tensors) {
      if (!on_sim(there)) continue;
      auto* impl = there.unsafeGetTensorImpl();
      c10::Storage storage;
      for (auto& [one, other] : storages)
        if (other.is_alias_of(here.storage())) storage = one;
      if (!storage) storage = moved(here.storage());
      if (!storage.is_alias_of(there.storage())) impl->set_storage_keep_dtype(storage);
      impl->set_sizes_and_strides(here.sizes(), here.strides(), here.storage_offset());
    }
  }
};

// ---- Operators -------------------------------------------------------------------------------------

// As for CUDA, all tensors are on one device; only numbers, tensors without dimensions, and indices
// may be on the CPU.
void check_devices(const c10::OperatorHandle& op, c10::ArrayRef<IValue> values) {
  const auto& arguments = op.schema().arguments();
  const auto& name = op.schema().name();
  const bool takes_numbers = op.hasTag(at::Tag::pointwise) || name.rfind("aten::_foreach", 0) == 0;
  std::optional<c10::Device> common;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    const bool indices = arguments[i].name() == "indices" && values[i].isList();
    auto look = [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const bool number = tensor.device().is_cpu() && tensor.dim() == 0 && !written;
      const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
      if (tensor.device().is_cpu() && (indices || (number && (takes_numbers || wrapped)))) return;
      if (!common) common = tensor.device();
      TORCH_CHECK(*common == tensor.device(), "Expected all tensors to be on the same device, but ",
                  "found at least two devices, ", *common, " and ", tensor.device(),
                  "! (argument ", arguments[i].name(), " of ", name, ")");
    };
    if (values[i].isTensor()) look(values[i].toTensor());
    else if (values[i].isList())
      for (const IValue& each : values[i].toListRef())
        if (each.isTensor()) look(each.toTensor());
  }
}

// `each` tensor inside, also in lists; the list has the type of the old one.
template <class Each>
void map_tensors(IValue& value, Each each) {
  if (value.isTensor()) value = each(value.toTensor());
  else if (value.isList()) {
    auto list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i)
      if (IValue(list.get(i)).isTensor()) list.set(i, each(IValue(list.get(i)).toTensor()));
    value = IValue(list);
  }
}

void run_on_cpu(const c10::OperatorHandle& op, Stack* stack) {
  auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const size_t first = stack->size() - arguments.size();
  Aliases aliases;
  std::optional<at::Generator> generator;
  for (size_t i = first; i < stack->size(); ++i) {
    IValue& value = (*stack)[i];
    map_tensors(value, [&](const at::Tensor& tensor) { return aliases.host(tensor); });
    if (value.isStorage() && value.toStorage().device_type() == SIM)
      value = aliases.host(value.toStorage());
    else if (value.isDevice() && value.toDevice().type() == SIM) {
      auto given = value.toDevice();
      aliases.device = given.has_index() ? given : Guard().getDevice();
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator() && op.hasTag(at::Tag::nondeterministic_seeded)) {
      generator = value.toGenerator();
      TORCH_CHECK(generator->device().type() == SIM, "Expected a 'sim' device type for generator ",
                  "but found '", generator->device().type(), "'");
      value = IValue();
    }
  }
  std::optional<Drawing> drawing;
  if (aliases.device && op.hasTag(at::Tag::nondeterministic_seeded))
    drawing.emplace(generator ? *generator : default_generator(aliases.device->index()));
  {
    at::AutoDispatchBelowADInplaceOrView below;
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  aliases.settle();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i)
    map_tensors((*stack)[i], [&](const at::Tensor& tensor) { return aliases.back(tensor); });
}

void checked(const c10::OperatorHandle& op, Stack* stack) {
  check_devices(op, torch::jit::last(*stack, op.schema().arguments().size()));
  run_on_cpu(op, stack);
}

// As between CPU and CUDA: `.data =` may change the device, and `module.to` keeps its parameters.
bool has_compatible_type(const at::Tensor& one, const at::Tensor& other) {
  auto known = [](const at::Tensor& t) { return on_sim(t) || t.device().is_cpu(); };
  return known(one) && known(other) && one.layout() == other.layout();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&checked>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_type);
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  // Their composite kernels, which have none for this device, would precede the fallback.
  m.impl("convolution", torch::CppFunction::makeFromBoxedFunction<&checked>());
  m.impl("convolution_backward", torch::CppFunction::makeFromBoxedFunction<&checked>());
}

// Mixed precision, for what networks of the tests have of CUDA's lists.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  KERNEL_PRIVATEUSEONE(nll_loss, fp32)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  m.def("default_generator", [](int index) { return default_generator(index); });
  m.def("current_device", [] { return int(current); });
  m.def("set_device", [](int index) { Guard().setDevice({SIM, c10::DeviceIndex(index)}); });
  m.def("device_count", [] { return DEVICES; });
}
