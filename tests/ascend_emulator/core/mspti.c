/* libmspti.so: preloaded, it makes torch_npu send its ranges to mstx; its own records stay empty. */
#include <stddef.h>
#include <stdint.h>

int msptiSubscribe(void **subscriber, void *callback, void *data) {
    (void)callback, (void)data;
    if (subscriber) *subscriber = NULL;
    return 0;
}

int msptiUnsubscribe(void *subscriber) { return (void)subscriber, 0; }
int msptiActivityEnable(int kind) { return (void)kind, 0; }
int msptiActivityDisable(int kind) { return (void)kind, 0; }
int msptiActivityIsEnabled(int kind) { return (void)kind, 0; }
int msptiActivityRegisterCallbacks(void *request, void *complete) { return (void)request, (void)complete, 0; }
int msptiActivityFlushAll(uint32_t flag) { return (void)flag, 0; }

int msptiActivityGetNextRecord(uint8_t *buffer, size_t size, void **record) {
    (void)buffer, (void)size;
    *record = NULL;
    return 1;
}

int msptiActivityPushExternalCorrelationId(int kind, uint64_t id) { return (void)kind, (void)id, 0; }
int msptiActivityPopExternalCorrelationId(int kind, uint64_t *id) { return (void)kind, *id = 0, 0; }
