# test_io_lifetime.mk
#
# Made of the server's sources like test_buf_table, see test_buf_table.mk.  To be
# included by Makefile.

IO_LIFETIME := ../../src/backend/storage/file/io_lifetime.c

$(OUT)/test_io_lifetime: test_io_lifetime.c $(IO_LIFETIME) ../../src/include/storage/io_lifetime.h Makefile test_io_lifetime.mk
	@mkdir -p $(OUT)
	$(CC) $(CFLAGS) $(CPPFLAGS) -UFRONTEND -I$(dir $(IO_LIFETIME)) \
		-ffunction-sections -fdata-sections -Wl,--gc-sections -o $@ $< \
		-lcmocka $(PGLIBS) -lm
