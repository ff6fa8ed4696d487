# test_protocol_startstop.mk
#
# Made of the server's sources like test_protocol, see test_protocol.mk.  To be
# included by Makefile.

$(OUT)/test_protocol_startstop: test_protocol_startstop.c unit.h unit_protocol.h unit_shmem.h violation.h unit_server.h $(wildcard $(PMEM)/*.c $(PMEM)/*/*.c) \
		$(wildcard ../../src/include/storage/pcache*.h) \
		Makefile test_protocol_startstop.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(if $(SANITIZE),-fno-sanitize=address) $(CPPFLAGS) -UFRONTEND -U_FORTIFY_SOURCE \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		$(PMEM)/pool/pcache_gate.c $(PMEM)/pool/pcache_control.c $(PMEM)/pool/pcache_copy_note.c $(PMEM)/pool/pcache_memory_error.c \
		$(PMEM)/pool/pcache_range.c $(PMEM)/pool/pcache_suspect.c $(PMEM)/pool/pcache_harvest.c $(PMEM)/pool/pcache_shrink.c \
		$(PMEM)/pool/pcache_power.c $(PMEM)/pool/pcache_sighting.c $(PMEM)/pool/pcache_sum_none.c \
		-lcmocka $(PG)/src/common/libpgcommon_srv.a $(PG)/src/port/libpgport_srv.a -lm
