// In place of cuRAND's header, which neither DALI's wheel nor a build without nvcc has. The headers
// of DALI's readers name this type and do not use it.
#pragma once

struct curandStateXORWOW;
using curandState = curandStateXORWOW;
