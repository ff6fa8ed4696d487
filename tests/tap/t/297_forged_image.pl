
# Copyright (c) 2026, the persistent-cache developers

# pg_pcache load believes the image that the data directory names, and no other one,
# however well its checksums fit.  Only the last save, and no start since, has it
# name one.

use strict;
use warnings FATAL => 'all';

use Digest::SHA qw(sha256);
use File::Copy qw(copy);
use JSON::PP;
use PCache;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant {
	SUPERBLOCK => 4096,
	CHUNKS => 8192,
	N_CHUNKS => 84,    # this and what follows: in the header
	INDEX_OFFSET => 104,
	DIGEST => 4056,
	ENTRY_SIZE => 56,
	ENTRY_DIGEST => 24,
};

my $node = new_node('main');
my $data = $node->data_dir;
my $pool = pool_file($node);
my $image = "$data.pcache-image";
my $genuine = "$data.genuine-image";
my $is_super = q(SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory_the_role');
my ($result, $offset, $record);

# The line of the record that names an image, or undef.
sub named { return slurp_file(state_file($node)) =~ /^image = ([0-9a-f]{64})$/m ? $1 : undef }

# Bring back the image that was saved, as a file of its owner's.
sub bring_back
{
	copy($genuine, $image) or die;
	chmod 0600, $image;
	return;
}

# Where a string is in the image.
sub place_of
{
	my ($string) = @_;
	my $at = index(slurp_file($image), $string);

	die "$string is not in the image" if $at < CHUNKS;
	return $at;
}

# Make all digests of the image fit what it has.
sub make_fit
{
	my ($n) = unpack('L', read_bytes($image, N_CHUNKS, 4));
	my ($index) = unpack('Q', read_bytes($image, INDEX_OFFSET, 8));

	for my $entry (map { $index + ENTRY_SIZE * $_ } 0 .. $n - 1)
	{
		my ($chunk, undef, undef, $size) = unpack('Q Q L L', read_bytes($image, $entry, 24));
		write_bytes($image, $entry + ENTRY_DIGEST, sha256(read_bytes($image, $chunk, $size)));
	}
	write_bytes($image, DIGEST,
		sha256(read_bytes($image, 0, DIGEST), read_bytes($image, SUPERBLOCK, 4096), read_bytes($image, $index, $n * ENTRY_SIZE)));
	return;
}

# It is not the one that the data directory names: nothing is loaded, and it says why.
sub is_refused
{
	my ($name) = @_;
	my $why = qr/^(?:image "\Q$image\E": )?it is not the one that the data directory names/;

	for my $dry ([], ['--dry-run'])
	{
		$result = verb_json($node, 'load', @$dry);
		is($result->{rc}, 2, "$name, @$dry: exit status");
		like($result->{detail}, $why, "$name, @$dry: reason");
		like($result->{hint}, qr/with option --trust/, "$name, @$dry: hint");
		ok(!-e $pool && -e $image, "$name, @$dry: nothing was changed");
	}
	my (undef, $out) = pcache($node, 'load');
	like($out, qr/^next start: COLD: image .*names, so somebody may have changed it\nhint: .*--trust\./m, "$name: text");
	$result = verb_json($node, 'verify', '--image' => $image);
	is($result->{rc}, 2, "$name, verify: exit status");
	is($result->{named}, JSON::PP::false, "$name, verify: it is not named");
	like($result->{detail}, $why, "$name, verify: reason");
	like($result->{hint}, qr/with option --trust/, "$name, verify: hint");
	is($result->{damaged_chunks}, 0, "$name, verify: nothing is damaged");
	(undef, $out) = pcache($node, 'status', '--image' => $image);
	like($out, qr/^named: +no$/m, "$name, status: it is not named");
	return;
}

# Load it all the same, and start.
sub trust
{
	my ($name) = @_;

	is(verb_json($node, 'load', '--trust')->{rc}, 0, "$name, --trust: loaded");
	ok(!-e $image, "$name, --trust: the image is removed");
	$offset = log_offset($node);
	$node->start;
	is(start_outcome($node, $offset)->{start}, 'warm', "$name, --trust: warm");
	return;
}

sub stop_and_save
{
	$node->safe_psql('postgres', 'SELECT count(*) FROM pg_authid');
	$node->stop;
	is(verb_json($node, 'save')->{rc}, 0, 'saved');
	copy($image, $genuine) or die;
	unlink $pool or die;
	return;
}

$node->start;
$node->safe_psql('postgres', 'CREATE ROLE mallory_the_role; CHECKPOINT');
is($node->safe_psql('postgres', $is_super), 'f', 'a role that is no superuser');
is(named(), undef, 'a start has the data directory name no image');
stop_and_save();
like(named(), qr/^@{[ unpack 'H*', read_bytes($image, DIGEST, 32) ]}$/, 'the data directory names the image by its digest');
$result = verb_json($node, 'status', '--image' => $image);
is($result->{named}, JSON::PP::true, 'status: it is named');
like((pcache($node, 'status', '--image' => $image))[1], qr/^named: +yes, by the data directory$/m, 'status: text');

# ---------------------------------------------------------------------------
# A role becomes superuser: rolsuper follows the name.
# ---------------------------------------------------------------------------
my $rolsuper = place_of("mallory_the_role\0") + 64;
is(read_bytes($image, $rolsuper, 1), "\0", 'rolsuper in the image');
write_bytes($image, $rolsuper, "\1");
$result = verb_json($node, 'load', '--strict', '--trust');
is($result->{rc}, 1, 'a byte was changed: exit status');
like($result->{stderr}, qr/chunk \d+ of image "\Q$image\E" has a wrong checksum/, 'a byte was changed: even --trust does not load the chunk');
make_fit();
is_refused('forged');
# what the tests above are about, and what --trust means
trust('forged');
is($node->safe_psql('postgres', $is_super), 't', 'forged, --trust: the role is a superuser');

# The superblock is part of what is named.
stop_and_save();
write_bytes($image, SUPERBLOCK + 2048, "\1");
is(verb_json($node, 'load', '--trust')->{rc}, 1, 'superblock: damaged');
make_fit();
is(verb_json($node, 'load', '--trust')->{rc}, 1, 'superblock: it has a checksum of its own');

# ---------------------------------------------------------------------------
# A genuine image that the data directory does not name.
# ---------------------------------------------------------------------------
bring_back();
$record = slurp_file(state_file($node));
write_state($node, $record =~ s/^image = .*\n//mr);
is(verb_json($node, 'load', '--dry-run', '--trust')->{rc}, 0, 'a record of an earlier version: it is read');
is_refused('a record without an image');
write_state($node, $record, image => '0' x 64);
is_refused('a record of another image');
write_state($node, $record);
is(verb_json($node, 'load', '--dry-run')->{rc}, 0, 'the record as it was: would be loaded');
write_state($node, $record =~ s/^image = .*\n//mr);
trust('a record without an image');

# Of two images, the later one is named.
$node->stop;
is(verb_json($node, 'save')->{rc}, 0, 'two images: the first is saved');
is(verb_json($node, 'save', '--to' => $genuine)->{rc}, 0, 'two images: the second is saved');
unlink $pool or die;
is_refused('the first of two images');
bring_back();
is(verb_json($node, 'load', '--keep')->{rc}, 0, 'two images: the second is loaded');

# ---------------------------------------------------------------------------
# Who changes the record.
# ---------------------------------------------------------------------------
isnt(named(), undef, 'a load leaves the name');
is(verb_json($node, 'save', '--list', '--to' => "$image-list")->{rc}, 0, 'a list: saved');
is(named(), unpack('H*', read_bytes($genuine, DIGEST, 32)), 'a list: the image is named as before');
is(verb_json($node, 'status', '--image' => "$image-list")->{named}, JSON::PP::false, 'a list: is not named');
is(verb_json($node, 'save', '--dry-run')->{rc}, 0, 'a dry run: exit status');
is(named(), unpack('H*', read_bytes($genuine, DIGEST, 32)), 'a dry run: the image is named as before');
is((pcache($node, 'rebuild', '--resize=64MB'))[0], 0, 'a larger pool: exit status');
is(named(), unpack('H*', read_bytes($genuine, DIGEST, 32)), 'a larger pool: the image is named as before');
unlink $pool or die;
is(verb_json($node, 'load')->{rc}, 0, 'a larger pool: the image is loaded');
is((pcache($node, 'rebuild', '--reset'))[0], 0, 'an empty pool: exit status');
is(named(), undef, 'an empty pool: no image is named');

$node->start;
stop_and_save();
isnt(named(), undef, 'a run with the pool: the image is named');
$node->start;
is(named(), undef, 'a start that finds no pool: no image is named');
stop_and_save();
isnt(named(), undef, 'a run without the pool: the image is named');
set_mode($node, 'off');
$node->start;
is(named(), undef, 'a run without the pool: no image is named');
$node->stop;
set_mode($node, 'planned_restart');
$result = verb_json($node, 'load');
is($result->{rc}, 2, 'a stale image: exit status');
like($result->{detail}, qr/control file was changed|last checkpoint of the cluster is at|run without/, 'a stale image: the reason is that it is one');
is($result->{hint}, undef, 'a stale image: nothing to trust');
is(verb_json($node, 'load', '--trust')->{rc}, 2, 'a stale image: nor does --trust load it');

# A list needs no name: what is loaded comes from the data files.
$node->start;
$node->safe_psql('postgres', 'SELECT count(*) FROM pg_authid');
$node->stop;
is(verb_json($node, 'save', '--list')->{rc}, 0, 'only a list: saved');
is(named(), undef, 'only a list: no image is named');
unlink $pool or die;
is(verb_json($node, 'verify', '--image' => $image)->{rc}, 0, 'only a list: verify of the image');
is(verb_json($node, 'load')->{rc}, 0, 'only a list: loaded');

# ---------------------------------------------------------------------------
# Killed around the moment when the data directory names the image.
# ---------------------------------------------------------------------------
SKIP:
{
	skip 'no injection points in this build', 1 if ($ENV{enable_injection_points} // '') ne 'yes';

	for my $step (qw(save-synced save-recorded save-renamed))
	{
		unlink $image;
		{
			local $ENV{PG_PCACHE_KILL_AT} = $step;
			is((pcache($node, 'save'))[0], -9, "$step: killed");
		}
		is(!!-e $image, $step eq 'save-renamed', "$step: the image");
		is(verb_json($node, 'status', '--image' => $image)->{named}, JSON::PP::true, "$step: an image that is there is named") if -e $image;
		is(verify_json($node)->{rc}, 0, "$step: the pool is warm");
		is(verb_json($node, 'save')->{rc}, 0, "$step: saved");
		unlink $pool or die;
		is(verb_json($node, 'load')->{rc}, 0, "$step: loaded");
	}
}

done_testing();
