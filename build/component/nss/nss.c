/*
 * libnss_assay.so.2: a name, a home and a shell for the user of a container whose
 * ID is not in /etc/passwd, as clusters give containers. OpenSSH refuses users
 * without a name, and the root file system may be read-only, so no file can be
 * changed to give them one. Each process learns of its own user alone, and root
 * of none.
 */
#include <nss.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int listed(uid_t uid)
{
	struct passwd entry, *found;
	char buf[8192];
	FILE *f = fopen("/etc/passwd", "re");
	int yes = 0;

	if (!f)
		return 0;
	while (!yes && fgetpwent_r(f, &entry, buf, sizeof buf, &found) == 0)
		yes = found->pw_uid == uid;
	fclose(f);
	return yes;
}

static enum nss_status self(struct passwd *p)
{
	uid_t uid = geteuid();

	if (uid == 0 || listed(uid))
		return NSS_STATUS_NOTFOUND;
	p->pw_name = "assay";
	p->pw_passwd = "*";
	p->pw_uid = uid;
	p->pw_gid = getegid();
	p->pw_gecos = "";
	p->pw_dir = "/home/assay";
	p->pw_shell = "/bin/bash";
	return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_assay_getpwuid_r(uid_t uid, struct passwd *p, char *buf, size_t len, int *err)
{
	(void)buf, (void)len, (void)err;
	return uid == geteuid() ? self(p) : NSS_STATUS_NOTFOUND;
}

enum nss_status _nss_assay_getpwnam_r(const char *name, struct passwd *p, char *buf, size_t len, int *err)
{
	(void)buf, (void)len, (void)err;
	return strcmp(name, "assay") == 0 ? self(p) : NSS_STATUS_NOTFOUND;
}
