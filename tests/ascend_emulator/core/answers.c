/* Questions about the device and CANN that must be answered: versions, options, core counts. */
#define _GNU_SOURCE
#include "emulator.h"

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUBE_CORES 24
#define VECTOR_CORES 48

/* Left unanswered, torch_npu reads an option from memory it never wrote and compiles operators at run time. */
static char jit_compile[16] = "disable";

aclError aclSetCompileopt(aclCompileOpt option, const char *value) {
    if (option == ACL_OP_JIT_COMPILE) snprintf(jit_compile, sizeof jit_compile, "%s", value);
    return 0;
}

size_t aclGetCompileoptSize(aclCompileOpt option) {
    return option == ACL_OP_JIT_COMPILE ? strlen(jit_compile) + 1 : 1;
}

aclError aclGetCompileopt(aclCompileOpt option, char *value, size_t length) {
    if (length) snprintf(value, length, "%s", option == ACL_OP_JIT_COMPILE ? jit_compile : "");
    return 0;
}

aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo what, int64_t *value) {
    (void)device;
    switch (what) {
    case ACL_DEVICE_INFO_AI_CORE_NUM: *value = CUBE_CORES; return 0;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = VECTOR_CORES; return 0;
    case ACL_DEVICE_INFO_L2_SIZE: *value = 192LL << 20; return 0;
    default: *value = 0; return 0;
    }
}

aclError aclrtGetDeviceInfo(uint32_t device, aclrtDevAttr attribute, int64_t *value) {
    switch ((int)attribute) {
    case 1: *value = 8; return 0;
    case 101: case 102: *value = CUBE_CORES; return 0;
    case 201: *value = VECTOR_CORES; return 0;
    case 301: *value = (int64_t)emu_config()->hbm_bytes; return 0;
    case 302: *value = 192LL << 20; return 0;
    case 402: *value = emu_physical_device((int)device); return 0;
    default: *value = 0; return 0;
    }
}

aclError aclrtGetDeviceResLimit(int32_t device, aclrtDevResLimitType type, uint32_t *value) {
    (void)device;
    *value = type == ACL_RT_DEV_RES_CUBE_CORE ? CUBE_CORES : VECTOR_CORES;
    return 0;
}

aclError aclrtGetStreamResLimit(aclrtStream stream, aclrtDevResLimitType type, uint32_t *value) {
    (void)stream;
    return aclrtGetDeviceResLimit(0, type, value);
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t *value) {
    return aclrtGetDeviceResLimit(0, type, value);
}

aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid *uuid) {
    memset(uuid, 0, sizeof *uuid);
    snprintf((char *)uuid, sizeof *uuid, "emulated-%d", emu_physical_device(device));
    return 0;
}

aclError aclrtDeviceCanAccessPeer(int32_t *can, int32_t device, int32_t peer) {
    *can = device != peer;
    return 0;
}

aclError aclrtGetSysParamOpt(aclSysParamOpt option, int64_t *value) {
    (void)option;
    *value = 0;
    return 0;
}

aclError aclGetCannAttribute(aclCannAttr attribute, int32_t *value) {
    (void)attribute;
    *value = 0;
    return 0;
}

aclError aclGetCannAttributeList(const aclCannAttr **attributes, size_t *count) {
    *attributes = NULL;
    *count = 0;
    return 0;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    (void)name;
    memset(version, 0, sizeof *version);
    snprintf(version->version, sizeof version->version, "%s", emu_config()->cann_version);
    int major = 0, minor = 0, release = 0;
    sscanf(version->version, "%d.%d.%d", &major, &minor, &release);
    snprintf(version->majorVersion, sizeof version->majorVersion, "%d", major);
    snprintf(version->minorVersion, sizeof version->minorVersion, "%d", minor);
    snprintf(version->releaseVersion, sizeof version->releaseVersion, "%d", release);
    return 0;
}

aclError aclsysGetVersionStr(char *package, char *version) {
    (void)package;
    strcpy(version, emu_config()->cann_version);
    return 0;
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t *flag) {
    (void)stream;
    *flag = 0;
    return 0;
}

aclError aclrtSetOpExecuteTimeOutV2(uint64_t timeout, uint64_t *actual) {
    *actual = timeout;
    return 0;
}

aclError aclrtGetMemUceInfo(int32_t device, aclrtMemUceInfo *found, size_t room, size_t *count) {
    (void)device, (void)found, (void)room;
    *count = 0;
    return 0;
}

aclError aclrtGetErrorVerbose(int32_t device, aclrtErrorInfo *found) {
    (void)device;
    memset(found, 0, sizeof *found);
    return 0;
}

/* Called with the count of devices through libascend_hal.so. */
int drvGetDevNum(uint32_t *count) {
    *count = (uint32_t)emu_config()->device_count;
    return 0;
}

/* Three functions of the bounds-checking C library that CANN ships. */
int strcpy_s(char *to, size_t room, const char *from) {
    if (!to || !from || strlen(from) >= room) return 22;
    strcpy(to, from);
    return 0;
}

int vsnprintf_s(char *to, size_t room, size_t count, const char *format, va_list arguments) {
    int wanted = vsnprintf(to, count < room ? count + 1 : room, format, arguments);
    return wanted < 0 || (size_t)wanted > count || (size_t)wanted >= room ? -1 : wanted;
}

int snprintf_s(char *to, size_t room, size_t count, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf_s(to, room, count, format, arguments);
    va_end(arguments);
    return wanted;
}
