#include <lockstep/group/registered_memory.h>

#include <utility>

#include "group/registration.h"

namespace lockstep {

RegisteredMemory::RegisteredMemory(std::shared_ptr<detail::Registration> registration)
    : registration_(std::move(registration)), data_(registration_->data()), size_(registration_->size()) {}

RegisteredMemory::~RegisteredMemory() = default;

}  // namespace lockstep
