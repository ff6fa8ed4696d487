# test_buf_table.mk
#
# Made of PostgreSQL's buf_table.c as the series leaves it, see test_protocol.mk,
# with its assertions (unit_assert.h).  To be included by Makefile.

BUFFER := $(SOURCE)/src/backend/storage/buffer

$(OUT)/test_buf_table: test_buf_table.c unit.h unit_server.h unit_assert.h unit_buf_table.h unit_shmem.h $(BUFFER)/buf_table.c Makefile test_buf_table.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -UFRONTEND -I$(BUFFER) \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -pthread -o $@ $< \
		-lcmocka $(PG)/src/common/libpgcommon_srv.a $(PG)/src/port/libpgport_srv.a $(LIBS) -lm

# no address sanitizer, which does not know coroutines
$(OUT)/test_buf_table_link: test_buf_table_link.c unit.h unit_server.h unit_assert.h unit_buf_table.h unit_shmem.h interleave.h \
		$(BUFFER)/buf_table.c Makefile test_buf_table.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(if $(SANITIZE),-fno-sanitize=address) $(CPPFLAGS) -UFRONTEND -U_FORTIFY_SOURCE \
		-I$(BUFFER) -ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		-lcmocka $(PG)/src/common/libpgcommon_srv.a $(PG)/src/port/libpgport_srv.a $(LIBS)
